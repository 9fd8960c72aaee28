// Puts it together.
let entries = [];
const unpacked = new Map();

function drawAll() {
  drawLegend(); drawMap(); drawTimeline(); drawPhases(); drawBlocks(); drawRuler(); drawOverlay(); drawStatus(); drawFlame(); drawTable();
  drawRanks(entries, state.number, show);
}

async function show(number) {
  if (!unpacked.has(number)) {
    // Of many recordings the first would keep too much memory for ever.
    if (unpacked.size > 3) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(number, recordingOf(await unpack(document.querySelectorAll("script.recording")[number])));
  }
  const recording = unpacked.get(number);
  state.number = number;
  $("recording").value = String(number);
  describe(recording);
  $("view").replaceChildren(...recording.views.map((view, index) => element("option", { value: index }, view.title + " · " + format.bytes(view.peak))));
  if (!recording.views.length) { nothing(recording); return; }
  document.body.querySelector("main").hidden = $("view-box").hidden = false;
  state.recording = recording;
  showView(recording.views[0]);
}

function showView(view) {
  flame.zoomed = null;
  view.groups ||= groupsOf(view);
  Object.assign(state, { view, groups: view.groups, from: 0, to: view.recording.end, span: null, lit: null, mode: "peak", moment: view.peakNs, hover: null });
  $("exactness").textContent = exactness(view);
  drawAll();
}

function exactness({ recording, blocks }) {
  const { blocks_all: all, blocks_exact: exact, blocks_share: share, sum_ns: width, phases_cut: cut } = recording.head;
  const text = exact === all ? "Every one of the " + format.count(all) + " blocks of this recording is kept exactly; curves have " + format.span(recording.bucket) + " a step."
    : format.count(exact) + " of " + format.count(all) + " blocks of this recording are kept exactly: all that were live at the peaks and at the end, and what can be seen, " +
      format.percent(share, 1) + " of all bytes × time. The small and short rest is not drawn, but summed by stack in stretches of " + format.span(width) +
      ". Curves have " + format.span(recording.bucket) + " a step.";
  return text + (cut ? " " + format.count(cut) + " of the shortest ranges are left out." : "");
}

// What ran, and its figures.
function describe(recording) {
  const { report } = recording.head, { summary } = recording, { bytes, span } = format;
  const program = recording.fact("argv") || format.base(report.trace);
  document.title = format.base(report.trace) + " · gpushim";
  $("program").textContent = $("program").title = program;
  const rank = recording.fact("rank");
  const pid = recording.fact("pid"), host = recording.fact("host"), isOneMoment = report.untold.some((one) => one.topic === "history");
  $("process").textContent = [pid ? "process " + pid + (host ? " on " + host : "") : host || "",
    rank ? "rank " + rank : "", report.started_wall_ns ? format.date(report.started_wall_ns) : ""].filter(Boolean).join(" · ");
  const figures = [];
  for (const view of recording.views.slice(0, 2)) {
    figures.push(["Peak " + view.title[0].toLowerCase() + view.title.slice(1), bytes(view.peak), isOneMoment ? "" : "at " + span(view.peakNs), view.layer + "-peak"]);
  }
  const most = (name) => Math.max(0, ...recording.views.flatMap((view) => view.others.filter((curve) => curve.name === name).map((curve) => curve.max.reduce((a, b) => Math.max(a, b), 0))));
  for (const [name, label] of [["framework reserved", "Framework reserved"], ["reserved", "Reserved"], ["driver", "Driver in use"]]) {
    if (most(name)) figures.push([label + ", peak", bytes(most(name)), "", name.replace(" ", "-")]);
  }
  const first = recording.views[0];
  if (first) figures.push(["Live at the end", bytes(first.endBytes), "", "end"]);
  figures.push(["Recorded", span(summary.last_ns), format.events(summary.events.readable), "length"]);
  if (summary.out_of_memory_count) figures.push(["Out of memory", format.count(summary.out_of_memory_count) + "×", "", "oom"]);
  $("figures").replaceChildren(...figures.map(([label, value, more, key]) => element("div", { class: key === "oom" ? "bad" : "", "data-key": key },
    element("dt", {}, label), element("dd", {}, value, more ? element("small", {}, more) : null))));
  drawFindings(report);
  const { events } = summary, problems = [...recording.problems];
  if (events.wrapped) {
    problems.unshift("The ring has wrapped: " + format.count(events.lost) + " older events are lost. Before " + span(summary.first_ns) +
      " (hatched) only the curves are known; blocks of that time are shown as far as they were live later.");
  }
  $("problems").hidden = !problems.length;
  $("problems").replaceChildren(...problems.map((problem) => element("li", {}, problem)));
}

function nothing(recording) {
  state.recording = state.view = null;
  document.body.querySelector("main").hidden = $("view-box").hidden = true;
  const events = recording.summary.events.readable;
  $("problems").hidden = false;
  $("problems").append(element("li", {}, events ? "This trace has " + format.events(events) + ", but no allocation of device or pinned host memory."
    : "This trace is empty: nothing was recorded."));
  drawRanks(entries, state.number, show);
}

function drawLegend() {
  const { groups, recording } = state, { stacks } = recording;
  const stacksOf = (group) => Array.from({ length: stacks.count }, (_, stack) => stack).filter((stack) => groups.of[stack] === group);
  const button = (group, name, place) => element("button", {
    type: "button", "aria-pressed": String(Boolean(state.lit && state.lit.label === name)), title: place ? name + "\n" + place : name,
    onclick: () => lightStacks(name, stacksOf(group)),
  }, swatch(group), element("span", {}, name));
  const made = groups.list.map(({ label, place }, group) => button(group, label, place));
  if (groups.hasOther) made.push(button(8, "others", ""));
  $("legend").replaceChildren(...made);
}

function drawStatus() {
  const { view, span, moment, lit } = state, window = state.to - state.from, parts = [];
  if (span) {
    const { most } = query.extremes(view, view.live, span.from, span.to);
    parts.push("selected ", element("b", {}, format.span(span.to - span.from)), " from " + format.moment(span.from, window) + ", peak ", element("b", {}, format.bytes(most)));
  } else {
    const isPeak = moment === view.peakNs;
    parts.push((isPeak ? "peak at " : "moment ") + format.moment(moment, window) + " ", element("b", {}, format.bytes(isPeak ? view.peak : query.liveAt(view, moment).total)));
  }
  if (lit) parts.push(" · " + (lit.label.length > 34 ? lit.label.slice(0, 33) + "…" : lit.label));
  if (span || lit || state.mode === "moment") parts.push(element("button", { type: "button", onclick: clearSelection, title: "Clear selection and highlight (Esc)" }, "Clear"));
  $("status").replaceChildren(...parts);
}

function connect() {
  listen(["from", "to"], drawMap);
  listen(["from", "to", "lit"], drawTimeline);
  listen(["from", "to"], drawPhases);
  listen(["from", "to", "lit"], drawBlocks);
  listen(["from", "to"], drawRuler);
  listen(["from", "to", "span", "moment", "hover"], drawOverlay);
  listen(["from", "to", "span", "moment", "lit", "mode"], drawStatus);
  listen(["lit"], drawLegend);
  listen(["span", "moment", "mode", "grouping", "aboveLine", "lit"], drawFlame);
  listen(["span", "moment", "mode", "grouping", "tab", "sort", "lit", "aboveLine"], drawTable);
  $("help").onclick = () => $("keys").showModal();
  $("frames").onclick = () => change({ aboveLine: !state.aboveLine });
  $("grouping").onchange = (event) => change({ grouping: event.target.value });
  $("view").onchange = (event) => showView(state.recording.views[event.target.value]);
  $("recording").onchange = (event) => show(Number(event.target.value));
  let wide = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === wide) return;
    wide = document.body.clientWidth;
    if (state.view) drawAll();
  }).observe(document.body);
  listenToPointer();
  listenToKeys();
}

async function start() {
  startTheme(() => { if (state.view) drawAll(); });
  entries = (await unpack($("index"))).head.recordings;
  $("recording").replaceChildren(...entries.map((entry, index) => element("option", { value: index }, entryName(entry))));
  $("recording-box").hidden = entries.length < 2;
  connect();
  await show(0);
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  $("problems").hidden = false;
  $("problems").replaceChildren(element("li", {}, "This page could not be read: " + error.message + ". It needs a browser of 2023 or later."));
  console.error(error);
});
