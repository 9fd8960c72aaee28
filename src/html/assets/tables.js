// The tables: who holds memory, iterations and phases, what went wrong.
function drawTable() {
  const { recording } = state, failures = recording.notes.filter(isFailure).length;
  const options = [["holders", "Holders"], ["phases", recording.iterations.length ? "Iterations" : "Phases"], ["blocks", "Largest blocks"], ["memory", "All memory"],
    ["events", "Events" + (recording.notes.length ? " (" + format.count(recording.notes.length) + ")" : "")]];
  choice($("tabs"), "tab", options, state.tab, (tab) => change({ tab }));
  if (failures) $("tabs").lastChild.classList.add("bad");
  $("grouping-box").hidden = state.tab !== "holders";
  const box = $("table");
  // Drawn anew, the row that has the focus keeps it.
  const rows = () => [...box.querySelectorAll("tbody tr")], held = rows().indexOf(document.activeElement);
  box.replaceChildren({ holders: holdersTable, phases: phasesTable, blocks: blocksTable, memory: memoryTable, events: eventsTable }[state.tab]());
  if (held >= 0) rows()[held]?.focus();
  box.setAttribute("aria-label", options.find(([value]) => value === state.tab)[1]);
}

// Columns: [title, class, cell]; `key` makes a title sort by it.
function table(columns, rows, { chosen, choose, sort }) {
  const head = columns.map(([title, kind, , key]) => element("th", { class: kind, scope: "col", "aria-sort": key && sort === key ? "descending" : null },
    key ? element("button", { type: "button", onclick: () => change({ sort: key }) }, title + (sort === key ? " ↓" : "")) : title));
  const body = rows.map((row, index) => {
    const cells = columns.map(([, kind, cell]) => {
      const content = cell(row, index);
      const made = element("td", { class: kind }, ...(Array.isArray(content) ? content : [content]));
      if (kind === "wide") made.title = made.textContent;
      return made;
    });
    return element("tr", {
      tabindex: 0, "aria-selected": chosen(row) ? "true" : "false", onclick: () => choose(row),
      onkeydown: (event) => {
        const to = { ArrowDown: event.currentTarget.nextSibling, ArrowUp: event.currentTarget.previousSibling }[event.key];
        if (event.key === "Enter" || event.key === " ") choose(row); else if (to) to.focus(); else return;
        event.preventDefault();
        event.stopPropagation();
      },
    }, ...cells);
  });
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

const empty = (...text) => element("p", { class: "empty" }, ...text);

function holdersTable() {
  const { found, ns } = results(), { recording, view, grouping } = state, { stacks } = recording;
  const isMoment = state.mode === "peak" || state.mode === "moment", groups = new Map();
  const add = (key, stack, bytes, blocks, oldest) => {
    if (!groups.has(key)) groups.set(key, { key, stack, bytes: 0, blocks: 0, oldest: Infinity, stacks: new Set() });
    const group = groups.get(key);
    group.bytes += bytes;
    group.blocks += blocks;
    group.oldest = Math.min(group.oldest, oldest);
    group.stacks.add(stack);
  };
  if (grouping === "size") {
    if (!isMoment) return empty("By size only what is live at a moment can be told apart: choose At peak or At moment.");
    const { blocks } = view;
    for (let index = 0; index < blocks.count && blocks.from[index] <= ns; index++) {
      if (blocks.to[index] > ns) add(blocks.size[index], blocks.stack[index], blocks.size[index], 1, blocks.from[index]);
    }
  } else {
    for (let stack = 0; stack < stacks.count; stack++) {
      if (found.blocks[stack] > 0) add({ stack, owner: stacks.owner[stack] }[grouping] ?? stacks.blame[stack], stack, found.bytes[stack], found.blocks[stack], found.oldest[stack]);
    }
  }
  if (!groups.size) return empty(emptyText());
  const by = { bytes: (a, b) => b.bytes - a.bytes, blocks: (a, b) => b.blocks - a.blocks, age: (a, b) => a.oldest - b.oldest };
  const rows = [...groups.values()].sort(by[state.sort] || by.bytes).slice(0, 200);
  const label = (row) => {
    if (grouping === "size") return [format.bytes(row.key), element("small", {}, format.count(row.key) + " bytes each")];
    if (grouping === "owner") return [swatch(state.groups.of[row.stack]), ownerName(row.key)];
    const frame = grouping === "stack" && stacks.node[row.stack] ? leafOf(row.stack) : stacks.blame[row.stack] - 1;
    const name = frame >= 0 ? frameName(frame) : "unknown", place = frame >= 0 ? format.base(framePlace(frame)) : "";
    return [swatch(state.groups.of[row.stack]), name, element("small", {}, grouping === "stack" && frame !== stacks.blame[row.stack] - 1 ? "for " + frameName(stacks.blame[row.stack] - 1) : place)];
  };
  const until = isMoment ? ns : scope().to;
  return table([
    [{ size: "Size", stack: "Innermost function", owner: "Owner" }[grouping] || "Function", "wide", label],
    ["Blocks", "n", (row) => format.count(row.blocks), "blocks"],
    ["Bytes", "n", (row) => format.bytes(row.bytes), "bytes"],
    ["Share", "n", (row) => format.percent(row.bytes, found.total)],
    [isMoment ? "Oldest" : "First", "n", (row) => row.oldest === Infinity ? "–" : isMoment ? format.span(until - row.oldest) : format.moment(row.oldest, 1e9), "age"],
  ], rows, {
    sort: state.sort,
    chosen: (row) => state.lit && [...row.stacks].every((stack) => state.lit.has[stack]),
    choose: (row) => lightStacks(grouping === "size" ? format.bytes(row.key) : grouping === "owner" ? ownerName(row.key) : frameName(stacks.blame[row.stack] - 1), [...row.stacks]),
  });
}

function leafOf(stack) {
  const { nodes, stacks, frames } = state.recording;
  let node = stacks.node[stack];
  if (state.aboveLine) while (node && !frames.above[nodes.frame[node - 1]] && nodes.parent[node - 1]) node = nodes.parent[node - 1];
  return nodes.frame[node - 1];
}

function phasesTable() {
  const { recording, view } = state;
  const measured = (row) => {
    const before = query.valueAt(view, { max: view.live.min }, row.from), after = query.valueAt(view, { max: view.live.min }, row.to);
    return { ...row, peak: query.extremes(view, view.live, row.from, row.to).most, kept: after - before };
  };
  const isChosen = (row) => state.span && state.span.from === row.from && state.span.to === row.to;
  const choose = (row) => { selectSpan(row.from, row.to); showSpan(row.from, row.to); };
  if (recording.iterations.length) {
    const rows = recording.iterations.map(measured);
    return table([
      ["Iteration", "", (row) => row.name], ["Start", "n", (row) => format.moment(row.from, 1e9)],
      ["Took", "n", (row) => format.span(row.to - row.from)], ["Peak", "n", (row) => format.bytes(row.peak)],
      ["Change", "n", (row) => format.change(row.kept)],
    ], rows.slice(0, 2000), { chosen: isChosen, choose });
  }
  const { phases } = recording, families = new Map();
  for (let index = 0; index < phases.count; index++) {
    const key = phases.family[index];
    if (!families.has(key)) families.set(key, { name: recording.texts[key], count: 0, total: 0, longest: 0 });
    const family = families.get(key), length = phases.to[index] - phases.from[index];
    family.count++;
    family.total += length;
    if (length >= family.longest) Object.assign(family, { longest: length, from: phases.from[index], to: phases.to[index] });
  }
  if (!families.size) return empty("The program announced no ranges. Put NVTX ranges around its phases (torch.cuda.nvtx.range_push), and they appear here and over the timeline.");
  return table([
    ["Phase", "wide", (row) => row.name], ["Times", "n", (row) => format.count(row.count)], ["Together", "n", (row) => format.span(row.total)],
    ["Longest", "n", (row) => format.span(row.longest)], ["Its peak", "n", (row) => format.bytes(row.peak)],
  ], [...families.values()].sort((a, b) => b.total - a.total).slice(0, 300).map(measured), { chosen: isChosen, choose });
}

function blocksTable() {
  const { view } = state, { blocks } = view, { from, to } = scope(), list = [];
  for (let index = 0; index < blocks.count && blocks.from[index] <= to; index++) if (blocks.to[index] >= from) list.push(index);
  if (!list.length) return empty(emptyText());
  list.sort((a, b) => blocks.size[b] - blocks.size[a] || blocks.from[a] - blocks.from[b]);
  const window = to - from;
  return table([
    ["Function", "wide", (index) => { const frame = state.recording.stacks.blame[blocks.stack[index]] - 1; return [swatch(state.groups.of[blocks.stack[index]]), frame >= 0 ? frameName(frame) : "unknown"]; }],
    ["Bytes", "n", (index) => format.bytes(blocks.size[index])], ["Address", "n", (index) => format.address(blocks.address[index])],
    ["From", "n", (index) => format.moment(blocks.from[index], window)],
    ["Lived", "n", (index) => blocks.to[index] === Infinity ? "to the end" : format.span(blocks.to[index] - blocks.from[index])],
  ], list.slice(0, 200), {
    chosen: () => false,
    choose: (index) => { selectMoment(blocks.from[index]); showSpan(blocks.from[index], Math.min(blocks.to[index], state.recording.end)); lightStacks(format.address(blocks.address[index]), [blocks.stack[index]]); },
  });
}

// What the device's memory is made of, at two moments: the rows add up to what is used.
function memoryTable() {
  const { recording, view } = state, all = recording.head.report.memory;
  const of = all.find(({ at_peak }) => at_peak.device === view.device) || (all.length === 1 ? all[0] : null);
  if (!of) return empty("This recording does not tell what the memory of this device is made of.");
  const { at_peak: peak, at_end: end } = of, rows = new Map();
  const key = (row) => JSON.stringify([row.part, row.owner, row.what, row.number, row.made_at]);
  for (const [at, memory] of [["peak", peak], ["end", end]]) {
    for (const row of memory.rows) rows.set(key(row), { ...(rows.get(key(row)) || { row, peak: 0, end: 0 }), [at]: row.bytes });
  }
  const sum = { row: { owner: end.driver_told ? "used" : "recorded", what: peak.others_told ? "by all processes" : "" }, peak: peak.used, end: end.used };
  const name = ({ row }) => row.owner + (row.what ? ": " + row.what : "") + (row.number ? " (" + row.number + ")" : "");
  const place = ({ row }) => row.made_at ? "made at " + row.made_at.name + (row.made_at.file ? " " + format.base(row.made_at.file) + ":" + row.made_at.line : "") : "";
  return table([
    ["Memory", "wide", (row) => [name(row), element("small", {}, place(row))]],
    ["At " + format.moment(peak.ns, 1e9), "n", (row) => format.bytes(row.peak)], ["Share", "n", (row) => format.percent(row.peak, peak.used)],
    ["At the end", "n", (row) => format.bytes(row.end)],
  ], [...rows.values(), sum], { chosen: () => false, choose: () => selectMoment(peak.ns) });
}

const NAMES = {
  "out-of-memory": "out of memory", "tensor-out-of-memory": "framework out of memory", "failed": "failed", "trim": "cache trimmed",
  "context-gone": "context gone", "mark": "mark", "alloc": "allocation failed", "tensor-alloc": "allocation failed",
};

function noteText(note) {
  const { bytes } = format, [first, second] = note.extra;
  if (note.kind === "mark") return note.text || "(no name)";
  if (note.kind === "trim") return bytes(note.size) + " given back";
  if (note.kind === "context-gone") return bytes(note.size) + " allocated and " + bytes(first) + " reserved went with it";
  if (note.kind === "tensor-out-of-memory") return "asked for " + bytes(note.size) + "; allocated " + bytes(first) + ", reserved " + bytes(second);
  if (note.kind === "out-of-memory") {
    const pools = note.pools[0] < 0 ? "" : "; pools: " + bytes(note.pools[0]) + " allocated of " + bytes(note.pools[1]) + ", largest free block " + bytes(note.pools[2]);
    return "asked for " + bytes(note.size) + "; " + bytes(first) + " free of " + bytes(second) + pools;
  }
  return "asked for " + bytes(note.size) + (note.result ? "; CUDA error " + note.result : "");
}

function eventsTable() {
  const { notes, head } = state.recording, window = state.to - state.from;
  if (!notes.length) return empty("No request failed, no context was lost, and the program set no marks.");
  const rows = [...notes].sort((a, b) => isFailure(b) - isFailure(a) || a.ns - b.ns);
  const made = table([
    ["Time", "n", (note) => format.moment(note.ns, Math.min(window, 1e9))],
    ["What", "", (note) => element("span", { class: isFailure(note) ? "bad" : "" }, NAMES[note.kind] || note.kind)],
    ["Details", "wide", (note) => noteText(note)],
    ["Thread", "n", (note) => note.thread ? String(note.thread) : "–"],
  ], rows.slice(0, 2000), {
    chosen: (note) => state.moment === note.ns && state.mode === "moment",
    choose: (note) => {
      selectMoment(note.ns);
      if (note.ns < state.from || note.ns > state.to) setWindow(note.ns - window / 2, note.ns + window / 2);
      if (note.stack) lightStacks(noteText(note), [note.stack]);
    },
  });
  if (!head.notes_cut) return made;
  return element("div", {}, made, empty(format.count(head.notes_cut) + " more are not in this page."));
}
