// What the page shows now; whoever draws a part of it listens to what it depends on.
const state = {
  recording: null, view: null, groups: null,
  from: 0, to: 1,          // the window of time
  span: null,              // the selected span, { from, to }
  moment: 0,               // the selected moment
  mode: "peak",            // of flame graph and table
  lit: null,               // highlighted stacks, { label, has: Uint8Array }
  aboveLine: true, grouping: "function", tab: "holders", sort: "bytes",
  hover: null,             // a moment under the pointer
};
const listeners = [];
let dirty = new Set(), isQueued = false;

function listen(keys, draw) { listeners.push([keys, draw]); }

// Changes something; what depends on it is drawn once, before the next frame.
function change(values) {
  for (const [key, value] of Object.entries(values)) {
    if (state[key] !== value) { state[key] = value; dirty.add(key); }
  }
  if (!isQueued && dirty.size) {
    isQueued = true;
    requestAnimationFrame(flush);
  }
}

function flush() {
  isQueued = false;
  const changed = dirty;
  dirty = new Set();
  for (const [keys, draw] of listeners) if (keys.some((key) => changed.has(key))) draw();
}

function setWindow(from, to) {
  const end = state.recording.end, least = Math.min(end, 1000);
  const length = Math.max(least, Math.min(end, to - from));
  const begin = Math.max(0, Math.min(end - length, from));
  change({ from: begin, to: begin + length });
}

function zoom(factor, around) {
  const at = around === undefined ? (state.from + state.to) / 2 : around;
  setWindow(at - (at - state.from) * factor, at + (state.to - at) * factor);
}

function pan(share) {
  const by = (state.to - state.from) * share;
  setWindow(state.from + by, state.to + by);
}

// Selects a span, and the moment of its peak with it.
function selectSpan(from, to) {
  const begin = Math.max(0, Math.min(from, to)), end = Math.min(state.recording.end, Math.max(from, to));
  const values = { span: { from: begin, to: end }, moment: query.peakIn(state.view, begin, end) };
  if (state.mode === "moment") values.mode = "peak";
  change(values);
}

function selectMoment(ns) {
  change({ moment: Math.max(0, Math.min(state.recording.end, ns)), mode: "moment" });
}

function clearSelection() { change({ span: null, lit: null, mode: "peak", moment: state.view.peakNs }); }

// Brings a span into sight, with some room around it.
function showSpan(from, to) {
  const room = Math.max((to - from) * 0.6, state.recording.end / 1e5);
  if (from < state.from || to > state.to || to - from < (state.to - state.from) / 40) setWindow(from - room, to + room);
}

function scope() { return state.span || { from: 0, to: state.recording.end }; }

// What flame graph and table are of.
function results() {
  const { view, mode } = state, { from, to } = scope();
  const key = [view.title, mode, from, to, mode === "moment" ? state.moment : 0].join();
  if (results.key !== key || results.view !== view) {
    results.key = key;
    results.view = view;
    results.ns = mode === "moment" ? state.moment : query.peakIn(view, from, to);
    results.found = mode === "moment" || mode === "peak" ? query.liveAt(view, results.ns) : query.inSpan(view, from, to, mode);
  }
  return { found: results.found, ns: results.ns };
}
