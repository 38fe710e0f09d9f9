// @ts-check
// Keeps an open page up to date, and adds keyboard shortcuts. Every page works without it.
"use strict";

/** The path and query of this page, relative to the console. */
const here = location.pathname.split("/").pop() + location.search;

/** The waits before each attempt to open the stream again, in milliseconds. */
const AGAIN = [1000, 2000, 5000, 15000];

const state = /** @type {HTMLElement | null} */ (document.getElementById("live-state"));
const pause = /** @type {HTMLButtonElement | null} */ (document.getElementById("live-pause"));
let paused = false;
let tries = 0;
/** @type {EventSource | null} */
let stream = null;
/** New texts of parts that cannot be shown yet: the page is paused, or the reader uses the part. */
/** @type {Map<string, string>} */
const waiting = new Map();

/** @param {string} says */
function tell(says) {
  if (state && state.textContent !== says) state.textContent = says;
}

/** Whether the reader types in `part`, or has selected some of its text. @param {Element} part */
function isInUse(part) {
  const at = document.activeElement;
  const typing = at && part.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  const selection = document.getSelection();
  const selecting = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return Boolean(typing || selecting);
}

/**
 * The key that identifies `node` after a change: its own key or link, or the first link in a row. Nodes without
 * a key are matched by position.
 * @param {Node} node
 * @returns {string | null}
 */
function keyOf(node) {
  if (!(node instanceof HTMLElement)) return null;
  const own = node.dataset.key ?? node.getAttribute("href");
  if (own !== null && own !== undefined) return node.tagName + own;
  if (!/^(TR|LI|DETAILS)$/.test(node.tagName)) return null;
  const link = node.querySelector("a[href]");
  return link && node.tagName + link.getAttribute("href");
}

/** The key of each node, in order; null if two nodes would have the same key. @param {Node[]} nodes */
function keysOf(nodes) {
  const keys = nodes.map(keyOf);
  return keys.map((key) => (keys.indexOf(key) === keys.lastIndexOf(key) ? key : null));
}

/**
 * Makes `old` like `fresh`. Existing elements are kept, and with them the focus, the scroll positions and the
 * opened details.
 * @param {Element} old
 * @param {Element} fresh
 */
function patch(old, fresh) {
  const isReaders = (/** @type {string} */ name) => name === "open" && old.tagName === "DETAILS";
  for (const { name } of Array.from(old.attributes)) {
    if (!fresh.hasAttribute(name) && !isReaders(name)) old.removeAttribute(name);
  }
  for (const { name, value } of Array.from(fresh.attributes)) {
    if (old.getAttribute(name) !== value && !isReaders(name)) old.setAttribute(name, value);
  }
  patchChildren(old, fresh);
}

/** Makes the children of `old` like those of `fresh`. @param {Element} old @param {Element} fresh */
function patchChildren(old, fresh) {
  const before = Array.from(old.childNodes);
  const beforeKeys = keysOf(before);
  /** @type {Map<string, ChildNode>} */
  const known = new Map();
  before.forEach((node, at) => { const key = beforeKeys[at]; if (key !== null) known.set(key, node); });
  const unkeyed = before.filter((_, at) => beforeKeys[at] === null);
  const wanted = Array.from(fresh.childNodes);
  const keys = keysOf(wanted);
  const kept = new Set();
  const next = wanted.map((node, at) => {
    const key = keys[at];
    const same = key === null ? unkeyed.shift() : known.get(key);
    if (!same || same.nodeName !== node.nodeName) return node;
    kept.add(same);
    if (same instanceof Element && node instanceof Element) patch(same, node);
    else if (same.nodeValue !== node.nodeValue) same.nodeValue = node.nodeValue;
    return same;
  });
  before.forEach((node) => { if (!kept.has(node)) node.remove(); });
  // Only nodes in the wrong place are moved, because a move removes the focus.
  let place = old.firstChild;
  for (const node of next) {
    if (node === place) place = place.nextSibling;
    else old.insertBefore(node, place);
  }
}

/** Shows the newest text of each waiting part, unless the reader uses it. */
function show() {
  for (const [id, text] of waiting) {
    const part = document.getElementById(id);
    if (!part) { waiting.delete(id); continue; }
    if (paused || isInUse(part)) continue;
    waiting.delete(id);
    const fresh = /** @type {Element} */ (part.cloneNode(false));
    // The server escapes every name; the policy of the page allows no script in it.
    fresh.innerHTML = text;
    const focused = document.activeElement;
    patchChildren(part, fresh);
    // If the focused row was moved, it has lost the focus.
    if (focused instanceof HTMLElement && part.contains(focused)) focused.focus({ preventScroll: true });
  }
}

function open() {
  if (document.hidden || paused || stream) return;
  let refusal = "";
  stream = new EventSource("live?page=" + encodeURIComponent(here));
  stream.addEventListener("parts", (event) => {
    tries = 0;
    tell("live");
    for (const [id, text] of Object.entries(JSON.parse(event.data))) waiting.set(id, text);
    show();
  });
  // After an update of the server, this script and the style sheet may be outdated.
  stream.addEventListener("version", (event) => {
    if (event.data !== document.body.dataset.version) location.reload();
  });
  // The server limits the lifetime of each stream.
  stream.addEventListener("again", () => { close(); open(); });
  stream.addEventListener("problem", (event) => { refusal = event.data; tell(refusal); });
  stream.onerror = () => {
    close();
    tell(refusal || "no connection; trying again");
    setTimeout(open, AGAIN[Math.min(tries++, AGAIN.length - 1)]);
  };
}

function close() {
  if (stream) stream.close();
  stream = null;
}

if (document.body.dataset.live !== undefined && "EventSource" in window) {
  open();
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  document.addEventListener("focusout", () => setTimeout(show, 0));
  document.addEventListener("selectionchange", () => setTimeout(show, 0));
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Go on" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
      if (paused) { close(); tell("paused"); } else { open(); show(); }
    });
  }
}

document.documentElement.classList.add("script");

// A page over plain HTTP has no clipboard; then the selected text is copied, as by Ctrl-C.
document.addEventListener("click", (event) => {
  const button = event.target instanceof HTMLElement ? event.target.closest("[data-copy]") : null;
  const lines = button && button.previousElementSibling;
  if (!button || !lines) return;
  const done = () => {
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  if (navigator.clipboard) {
    navigator.clipboard.writeText(lines.textContent || "").then(done, () => {});
    return;
  }
  const selection = document.getSelection();
  if (selection) selection.selectAllChildren(lines);
  if (document.execCommand("copy")) done();
  if (selection) selection.removeAllRanges();
});

/**
 * The page for a letter that follows `g`, according to the list of keys.
 * @param {string} letter
 */
function placeOf(letter) {
  const keys = Array.from(document.querySelectorAll("#page-keys [data-to]"));
  const key = keys.find((key) => key.textContent === letter);
  return key ? key.getAttribute("data-to") : null;
}
let going = false;

document.addEventListener("keydown", (event) => {
  const at = event.target;
  const typing = at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const help = document.getElementById("page-keys");
  const place = going ? placeOf(event.key) : null;
  if (place) {
    location.href = (document.body.dataset.root || "") + place;
  } else if (event.key === "/") {
    const search = document.getElementById("page-search");
    if (search) { search.focus(); event.preventDefault(); }
  } else if (event.key === "?" && help instanceof HTMLDialogElement) {
    help.showModal();
  }
  going = event.key === "g";
});
