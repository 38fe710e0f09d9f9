#![doc = include_str!("../README.md")]
#![expect(
    clippy::disallowed_types,
    reason = "functions take real time, whatever the clock of a test says"
)]

use rquickjs::{Array, CatchResultExt as _, Context, Ctx, Function, Persistent, Runtime};
#[expect(
    clippy::disallowed_types,
    reason = "a function takes real time, whatever a test's clock says"
)]
use std::time::Instant;
use std::{cell::Cell, fmt, rc::Rc, time::Duration};

/// The environment that CouchDB gives to map functions.
const ENVIRONMENT: &str = include_str!("environment.js");

/// How much functions may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time for one document, all functions together.
    pub time: Duration,
    /// Time for all documents together.
    pub total: Duration,
    /// Bytes of memory.
    pub memory: usize,
    /// Bytes of stack.
    pub stack: usize,
    /// Bytes of the rows emitted for one document, as JSON.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // CouchDB ends a query server after the same time (`[couchdb] os_process_timeout`).
            time: Duration::from_secs(5),
            total: Duration::from_secs(30),
            memory: 64 << 20,
            stack: 256 << 10,
            output: 8 << 20,
        }
    }
}

/// Why functions did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The engine could not be started.
    #[error("the JavaScript engine does not start: {0}")]
    Engine(String),
    /// The source is not JavaScript, or not a function.
    #[error("a map function cannot be compiled: {0}")]
    Compile(String),
    /// It does not end within the time for one document.
    #[error("a map function does not end within {0:?} for one document")]
    Endless(Duration),
    /// It used more memory or emitted more than allowed, or all documents together took too long.
    #[error("a map function exceeds its limits: {0}")]
    Limits(String),
}

/// What map functions did with a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The rows emitted, as JSON: a list for each function, with a list of key and value for each row.
    pub rows: String,
    /// The error that each function threw. A function that throws emits nothing, as in CouchDB.
    pub errors: Vec<Option<String>>,
}

/// Compiled map functions of a design document.
pub struct Maps {
    // Dropped before its context.
    run: Option<Persistent<Function<'static>>>,
    context: Context,
    /// The deadline of the running call.
    deadline: Rc<Cell<Option<Instant>>>,
    /// Total time of all calls.
    spent: Cell<Duration>,
    limits: Limits,
}

impl fmt::Debug for Maps {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Maps").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        // A persistent value must be dropped before its runtime.
        drop(self.run.take());
    }
}

impl Maps {
    /// Compiles functions; `lib` is the JSON of `views.lib`.
    ///
    /// # Errors
    /// If one cannot be compiled.
    pub fn compile(sources: &[&str], lib: Option<&str>, limits: &Limits) -> Result<Self, MapError> {
        let engine = |why: rquickjs::Error| MapError::Engine(why.to_string());
        let runtime = Runtime::new().map_err(engine)?;
        runtime.set_memory_limit(limits.memory);
        runtime.set_max_stack_size(limits.stack);
        let deadline = Rc::new(Cell::new(None::<Instant>));
        let ends = Rc::clone(&deadline);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            ends.get().is_some_and(|end| Instant::now() > end)
        })));
        let context = Context::full(&runtime).map_err(engine)?;
        let spent = Cell::new(Duration::ZERO);
        let mut maps = Self { run: None, context, deadline, spent, limits: limits.clone() };
        let list = json_list(sources);
        let run = maps.within_limits(|ctx| {
            let prepare: Function<'_> = ctx.eval(ENVIRONMENT)?;
            let run: Function<'_> = prepare.call((list, lib.unwrap_or("{}")))?;
            Ok(Persistent::save(ctx, run))
        });
        maps.run = Some(run.map_err(MapError::Compile)?);
        Ok(maps)
    }

    /// Runs the functions on a document.
    ///
    /// # Errors
    ///
    /// If the functions exceed the limits.
    pub fn run(&self, doc: &str) -> Result<Mapped, MapError> {
        let Some(run) = self.run.clone() else {
            return Ok(Mapped { rows: "[]".to_owned(), errors: Vec::new() });
        };
        let before = self.spent.get();
        let mapped = self.within_limits(|ctx| {
            let answer: Array<'_> = run.restore(ctx)?.call((doc,))?;
            Ok(Mapped { rows: answer.get(0)?, errors: answer.get(1)? })
        });
        let took = self.spent.get().saturating_sub(before);
        let mapped = mapped.map_err(|why| match took >= self.limits.time {
            true => MapError::Endless(self.limits.time),
            false => MapError::Limits(why),
        })?;
        match mapped.rows.len() <= self.limits.output {
            true => Ok(mapped),
            false => Err(MapError::Limits(format!(
                "it emits {} bytes for one document",
                mapped.rows.len()
            ))),
        }
    }

    fn within_limits<T>(
        &self,
        work: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        let rest = self.limits.total.saturating_sub(self.spent.get());
        if rest.is_zero() {
            return Err(format!("all documents together took {:?}", self.spent.get()));
        }
        self.deadline.set(begun.checked_add(self.limits.time.min(rest)));
        let done = self.context.with(|ctx| {
            let done = work(&ctx);
            done.catch(&ctx).map_err(|why| why.to_string())
        });
        self.deadline.set(None);
        self.spent.set(self.spent.get().saturating_add(begun.elapsed()));
        done
    }
}

fn json_list(texts: &[&str]) -> String {
    let mut list = String::from("[");
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            list.push(',');
        }
        list.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => list.extend(['\\', letter]),
                letter if u32::from(letter) < 0x20 => {
                    list.push_str(&format!("\\u{:04x}", u32::from(letter)));
                }
                letter => list.push(letter),
            }
        }
        list.push('"');
    }
    list.push(']');
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rows(sources: &[&str], lib: Option<Value>, doc: Value) -> Value {
        let lib = lib.map(|lib| lib.to_string());
        let maps = Maps::compile(sources, lib.as_deref(), &Limits::default()).unwrap();
        serde_json::from_str(&maps.run(&doc.to_string()).unwrap().rows).unwrap()
    }

    #[test]
    fn map_functions_can_use_couchdbs_helpers() {
        let doc = json!({ "_id": "a", "n": [1, 2, 3], "x": "y" });
        for (source, expected) in [
            ("function(doc){emit(doc.x,sum(doc.n));}", json!([["y", 6]])),
            ("function(doc){emit()};", json!([[null, null]])),
            ("(function(doc){emit(doc.none,isArray(doc.n))})", json!([[null, true]])),
            ("(doc) => { emit(JSON.parse(toJSON(doc)).x); log('said'); }", json!([["y", null]])),
            ("function(doc){emit(1);throw('no');}", json!([])),
            ("function(doc){doc.x='z';emit(doc.x)}", json!([["y", null]])),
            (
                "function(doc){emit(1,new Error('e'))}",
                json!([[1, {"error": "Error", "message": "e"}]]),
            ),
            (
                "function(doc){\n// a comment\nfor (var i in doc.n) emit(doc.n[i], doc._id)\n}",
                json!([[1, "a"], [2, "a"], [3, "a"]]),
            ),
        ] {
            assert_eq!(rows(&[source], None, doc.clone()), json!([expected]), "{source}");
        }
    }

    #[test]
    fn library_modules_can_require_each_other() {
        let lib = json!({
            "days": "var other = require('./names'); exports.of = function (doc) { return other.name + doc.day; };",
            "names": "module.exports = { name: 'day ' };",
            "deep": { "inner": "exports.up = require('../days').of({ day: 2 });" },
        });
        let source = "function(doc){emit(require('views/lib/days').of(doc), require('views/lib/deep/inner').up)}";
        assert_eq!(rows(&[source], Some(lib), json!({ "day": 1 })), json!([[["day 1", "day 2"]]]));
        let missing = "function(doc){emit(require('views/lib/none'))}";
        assert_eq!(rows(&[missing], None, json!({})), json!([[]]));
    }

    #[test]
    fn each_map_function_gets_only_its_own_rows() {
        let sources = ["function(doc){emit(1)}", "function(doc){emit(2)}"];
        assert_eq!(rows(&sources, None, json!({})), json!([[[1, null]], [[2, null]]]));
    }

    #[test]
    fn endless_and_greedy_functions_are_stopped() {
        let limits =
            Limits { time: Duration::from_millis(50), memory: 8 << 20, ..Limits::default() };
        let failed = |source: &str| {
            let maps = Maps::compile(&[source], None, &limits).unwrap();
            // It still works afterwards.
            [maps.run("{}"), maps.run("{}")]
        };
        let endless = || Err(MapError::Endless(limits.time));
        assert_eq!(failed("function(doc){for(;;){}}"), [endless(), endless()]);
        assert_eq!(
            failed("function(doc){try{for(;;){}}catch(e){emit(1)}}"),
            [endless(), endless()]
        );
        let greedy = Maps::compile(
            &["function(doc){var a=[];for(;;)a.push('x'.repeat(1000)+a.length)}"],
            None,
            &limits,
        )
        .unwrap();
        assert!(fails(&greedy.run("{}")));
        let deep = Maps::compile(&["function f(doc){f(doc)}"], None, &limits).unwrap();
        assert!(fails(&deep.run("{}")));
        let short = Limits { total: Duration::from_millis(100), ..limits.clone() };
        let slow = "function(doc){for(var i=0;i<1e5;i++)Math.sqrt(i)}";
        let slow = Maps::compile(&[slow], None, &short).unwrap();
        let runs = (0..10_000).map(|_| slow.run("{}")).take_while(Result::is_ok).count();
        assert!(runs < 10_000, "all documents together have a limit");
        let loud = Limits { output: 100, ..Limits::default() };
        let loud = Maps::compile(&["function(doc){emit('x'.repeat(200))}"], None, &loud).unwrap();
        assert!(matches!(loud.run("{}"), Err(MapError::Limits(_))));
    }

    /// Whether the functions exceeded a limit, or threw what the engine throws then.
    fn fails(mapped: &Result<Mapped, MapError>) -> bool {
        mapped.as_ref().map_or(true, |mapped| mapped.errors.iter().all(Option::is_some))
    }

    #[test]
    fn names_what_each_function_throws() {
        let sources =
            ["function(doc){emit(doc.a.b)}", "function(doc){emit(1)}", "function(doc){throw 'no'}"];
        let maps = Maps::compile(&sources, None, &Limits::default()).unwrap();
        let mapped = maps.run("{}").unwrap();
        assert_eq!(mapped.rows, "[[],[[1,null]],[]]");
        let thrown = "TypeError: cannot read property 'b' of undefined".to_owned();
        assert_eq!(mapped.errors, [Some(thrown), None, Some("no".to_owned())]);
    }

    #[test]
    fn map_functions_cannot_access_the_host() {
        let source = "function(doc){emit(['std','os','process','fetch','XMLHttpRequest','import','load','print','readline','setTimeout','console','WebAssembly','Worker'].filter(function(n){return typeof globalThis[n]!=='undefined'}))}";
        assert_eq!(rows(&[source], None, json!({})), json!([[[[], null]]]));
    }

    #[test]
    fn source_that_is_not_a_function_fails_to_compile() {
        for source in ["function(doc){", "3", ""] {
            let failed = Maps::compile(&[source], None, &Limits::default());
            assert!(matches!(failed, Err(MapError::Compile(_))), "{source}");
        }
    }
}
