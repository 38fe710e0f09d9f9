// @ts-check
// Keeps an open page up to date, and adds the keyboard. Every page works without it.
"use strict";

/** The place that the page's answers belong to, as the server knows it. */
const here = location.pathname.split("/").pop() + location.search;

/** How long to wait before the stream is opened again, in milliseconds. */
const AGAIN = [1000, 2000, 5000, 15000];

const state = /** @type {HTMLElement | null} */ (document.getElementById("live-state"));
const pause = /** @type {HTMLButtonElement | null} */ (document.getElementById("live-pause"));
let paused = false;
let tries = 0;
/** @type {EventSource | null} */
let stream = null;
/** Parts that came while the page was paused, or while the reader was in them. */
/** @type {Map<string, string>} */
const waiting = new Map();

/** @param {string} says */
function tell(says) {
  if (state && state.textContent !== says) state.textContent = says;
}

/** Which parts of `part` the reader has opened or closed, by their order. @param {Element} part */
function opened(part) {
  return Array.from(part.querySelectorAll("details"), (it) => it.open);
}

/** Whether the reader types in `part`, or has selected some of its text. @param {Element} part */
function isInUse(part) {
  const at = document.activeElement;
  const typing = at && part.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  const selection = document.getSelection();
  const selecting = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return Boolean(typing || selecting);
}

/** Puts the newest text of each waiting part in its place. */
function show() {
  for (const [id, text] of waiting) {
    const part = document.getElementById(id);
    if (!part) { waiting.delete(id); continue; }
    if (paused || isInUse(part)) continue;
    waiting.delete(id);
    const open = opened(part);
    const focused = document.activeElement && part.contains(document.activeElement)
      ? document.activeElement.getAttribute("href") : null;
    // The server escapes every name; the policy of the page allows no script in it.
    part.innerHTML = text;
    part.querySelectorAll("details").forEach((it, at) => { if (at in open) it.open = open[at]; });
    if (focused !== null) {
      const again = part.querySelector(`[href="${CSS.escape(focused)}"]`);
      if (again instanceof HTMLElement) again.focus();
    }
  }
}

function open() {
  if (document.hidden || paused || stream) return;
  stream = new EventSource("live?page=" + encodeURIComponent(here));
  stream.addEventListener("parts", (event) => {
    tries = 0;
    tell("live");
    for (const [id, text] of Object.entries(JSON.parse(event.data))) waiting.set(id, text);
    show();
  });
  stream.addEventListener("new-version", () => location.reload());
  stream.onerror = () => {
    close();
    tell("no connection; trying again");
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

/** Where `g` and a letter lead. */
/** @type {Record<string, string>} */
const PLACES = { o: "./", t: "targets", q: "queue", j: "jobs", e: "events", n: "nodes", a: "advice", w: "what-if", c: "configuration", s: "status" };
let going = false;

document.addEventListener("keydown", (event) => {
  const at = event.target;
  const typing = at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const help = document.getElementById("page-keys");
  if (going && event.key in PLACES) {
    location.href = (document.body.dataset.root || "") + PLACES[event.key];
  } else if (event.key === "/") {
    const search = document.getElementById("page-search");
    if (search) { search.focus(); event.preventDefault(); }
  } else if (event.key === "?" && help instanceof HTMLDialogElement) {
    help.showModal();
  }
  going = event.key === "g";
});
