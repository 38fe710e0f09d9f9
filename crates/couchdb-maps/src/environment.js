// What CouchDB's query server gives to map functions (share/server: views.js, util.js, loop.js).
// It is evaluated before any function of a design document.
(function (global) {
  "use strict";
  const stringify = JSON.stringify, parse = JSON.parse, evaluate = global.eval;
  let rows = [];
  const cache = {};

  function errorAsJson(value) {
    return typeof value === "object" && value !== null && "stack" in value && "name" in value && "message" in value
      ? { error: value.name, message: value.message } : value;
  }

  function freeze(value) {
    if (Object.isFrozen(value)) return;
    Object.freeze(value);
    for (const name of Reflect.ownKeys(value)) {
      const inner = value[name];
      if (inner && (typeof inner === "object" || typeof inner === "function")) freeze(inner);
    }
  }

  function resolve(names, module, root) {
    if (names.length === 0) {
      if (typeof module.current !== "string") throw new Error("require needs the path of a text");
      return { current: module.current, parent: module.parent, id: module.id, exports: {} };
    }
    const name = names.shift();
    if (name === "..") {
      if (!(module.parent && module.parent.parent)) throw new Error("the path of require has no parent");
      const id = module.id.slice(0, module.id.lastIndexOf("/"));
      return resolve(names, { id, parent: module.parent.parent, current: module.parent.current });
    }
    if (name === ".") {
      if (!module.parent) throw new Error("the path of require has no parent");
      return resolve(names, { parent: module.parent, current: module.current, id: module.id });
    }
    if (root) module = { current: root };
    if (module.current[name] === undefined) throw new Error("require found nothing called " + name);
    const id = module.id ? module.id + "/" + name : name;
    return resolve(names, { current: module.current[name], parent: module, id });
  }

  function requireFor(design) {
    return function require(name, module) {
      const found = resolve(name.split("/"), (module || {}).parent, design);
      if (!Object.hasOwn(cache, found.id)) {
        cache[found.id] = {};
        const run = evaluate("(function (module, exports, require) { " + found.current + "\n })");
        run.apply(global, [found, found.exports, (inner) => require(inner, found)]);
        cache[found.id] = found.exports;
      }
      return cache[found.id];
    };
  }

  global.emit = (key, value) => { rows.push([key, errorAsJson(value)]); };
  global.log = () => {};
  global.sum = (values) => { let sum = 0; for (const at in values) sum += values[at]; return sum; };
  global.isArray = (value) => Object.prototype.toString.call(value) === "[object Array]";
  global.toJSON = stringify;
  // Functions of other kinds, which some scripts name.
  for (const name of ["provides", "registerType", "start", "send", "getRow", "index"]) global[name] = () => {};

  // Prepares the functions, and returns the one that runs them all on a document: it returns the rows
  // as JSON, and what each function threw.
  return (sources, lib) => {
    global.require = requireFor({ views: { lib: parse(lib) } });
    const functions = parse(sources).map((source) => {
      const made = evaluate("(" + source.trim().replace(/;+$/, "") + "\n)");
      if (typeof made !== "function") throw new Error("it is no function");
      return made;
    });
    return (text) => {
      const doc = parse(text);
      freeze(doc);
      const errors = [];
      const emitted = functions.map((map) => {
        rows = [];
        try {
          map(doc);
          errors.push(null);
          return rows;
        } catch (error) {
          // As CouchDB: such a document emits nothing. What interrupts the engine cannot be caught.
          errors.push(String(error));
          return [];
        }
      });
      return [stringify(emitted), errors];
    };
  };
})(globalThis);
