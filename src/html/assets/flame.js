// The flame graph: outermost function on top, as wide as its bytes.
const ROW = 20;
const flame = { zoomed: null };

// Totals by function, from those by stack; frames that are not wanted are passed over.
function flameTree(found) {
  const { nodes, frames, stacks } = state.recording;
  const isAbove = state.aboveLine;
  const root = { frame: -1, bytes: 0, children: new Map(), groups: new Float64Array(9), stacks: [] };
  const paths = new Map();
  const pathOf = (node) => {
    if (!node) return [];
    if (paths.has(node)) return paths.get(node);
    const above = pathOf(nodes.parent[node - 1]), frame = nodes.frame[node - 1];
    const path = !isAbove || frames.above[frame] ? [...above, frame] : above;
    paths.set(node, path);
    return path;
  };
  for (let stack = 0; stack < stacks.count; stack++) {
    const bytes = found.bytes[stack];
    if (!(bytes > 0)) continue;
    let path = pathOf(stacks.node[stack]);
    // Nothing above the line in it: the function that is held responsible.
    if (!path.length && stacks.blame[stack]) path = [stacks.blame[stack] - 1];
    // By owner, a frame that stands for the owner is the outermost one.
    if (state.grouping === "owner") path = [-2 - stacks.owner[stack], ...path];
    const group = state.groups.of[stack];
    let at = root;
    const add = (node) => { node.bytes += bytes; node.groups[group] += bytes; node.stacks.push(stack); };
    add(root);
    for (const frame of path) {
      if (!at.children.has(frame)) {
        at.children.set(frame, { frame, parent: at, bytes: 0, children: new Map(), groups: new Float64Array(9), stacks: [] });
      }
      at = at.children.get(frame);
      add(at);
    }
  }
  return root;
}

const keyOf = (node) => node.parent ? keyOf(node.parent) + "/" + node.frame : "";

function ownerName(owner) { return owner ? "kept by " + state.recording.texts[owner - 1] : "not named"; }
function frameName(frame) {
  if (frame < -1) return ownerName(-2 - frame);
  return state.recording.texts[state.recording.frames.name[frame]] || "(no name)";
}
function framePlace(frame) { return frame < 0 ? "" : state.recording.texts[state.recording.frames.place[frame]]; }

function drawFlame() {
  const box = $("flame"), { found } = results(), width = box.clientWidth - 2;
  const held = document.activeElement && box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  drawScope(found);
  if (!found.total) {
    box.replaceChildren(element("p", { class: "empty" }, emptyText()));
    return;
  }
  const root = flameTree(found);
  let top = root;
  if (flame.zoomed) {
    const find = (node) => keyOf(node) === flame.zoomed ? node : [...node.children.values()].map(find).find(Boolean);
    top = find(root) || root;
    if (top === root) flame.zoomed = null;
  }
  const made = [];
  const place = (node, left, depth, wide) => {
    made.push(flameButton(node, left, depth, wide, top, root));
    let at = left;
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      const share = child.bytes / node.bytes * wide;
      if (share >= 1.5) place(child, at, depth + 1, share);
      at += share;
    }
  };
  const above = [];
  for (let node = top.parent; node; node = node.parent) above.unshift(node);
  above.forEach((node, depth) => made.push(flameButton(node, 0, depth, width, top, root)));
  place(top, 0, above.length, width);
  box.classList.toggle("lit", Boolean(state.lit));
  box.replaceChildren(...made);
  const first = made.find((button) => button.dataset.key === held) || made[above.length];
  first.tabIndex = 0;
  if (held !== null) first.focus();
}

function flameButton(node, left, depth, wide, top, root) {
  const isRoot = node === root, group = node.groups.indexOf(Math.max(...node.groups));
  const name = isRoot ? "all" : frameName(node.frame);
  const share = format.percent(node.bytes, root.bytes);
  const button = element("button", {
    type: "button", role: "treeitem", tabindex: -1, "data-key": keyOf(node), "aria-level": depth + 1,
    "aria-label": name + ", " + format.bytes(node.bytes) + ", " + share, class: (isRoot ? "root " : "") + (wide < 24 ? "thin " : "") +
      (state.lit && node.stacks.some((stack) => state.lit.has[stack]) ? "lit" : ""),
    onclick: () => light(node, isRoot), ondblclick: () => zoomFlame(node),
    onpointermove: (event) => tip(event, [name, isRoot ? "" : framePlace(node.frame), format.bytes(node.bytes) + " · " + share + " of all · " + format.percent(node.bytes, top.bytes) + " of what is shown", "click: highlight its blocks · double-click: zoom"].filter(Boolean)),
    onpointerleave: () => tip(),
    onkeydown: (event) => flameKey(event, node),
  }, wide < 24 ? "" : isRoot ? name + " · " + format.bytes(node.bytes) : name);
  button.style.left = left + "px";
  button.style.top = depth * ROW + "px";
  button.style.width = Math.max(1, wide - 1) + "px";
  // One colour only for what is mostly one function's.
  const isMixed = node.groups[group] < 0.7 * node.bytes;
  button.style.background = isRoot ? "var(--region)" : isMixed ? "var(--mixed)" : "var(--g" + group + ")";
  if (isMixed && !isRoot) button.style.color = "var(--text)";
  return button;
}

function light(node, isRoot) {
  if (isRoot) { change({ lit: null }); return; }
  lightStacks(frameName(node.frame), node.stacks);
}

// Highlights stacks everywhere; the same ones again: no longer.
function lightStacks(label, list) {
  const has = new Uint8Array(state.recording.stacks.count), groups = new Set();
  for (const stack of list) { has[stack] = 1; groups.add(state.groups.of[stack]); }
  const isSame = state.lit && state.lit.label === label && state.lit.size === list.length;
  change({ lit: isSame ? null : { label, has, groups, size: list.length } });
}

function zoomFlame(node) {
  const key = keyOf(node);
  flame.zoomed = flame.zoomed === key || !node.parent ? null : key;
  drawFlame();
}

function flameKey(event, node) {
  const buttons = [...$("flame").children], at = buttons.indexOf(event.currentTarget);
  const top = (button) => parseFloat(button.style.top), left = (button) => parseFloat(button.style.left);
  const own = event.currentTarget, row = (by) => buttons.filter((button) => top(button) === top(own) + by);
  let to = null;
  if (event.key === "ArrowDown") to = row(ROW).find((button) => left(button) >= left(own) - 1 && left(button) < left(own) + own.offsetWidth);
  else if (event.key === "ArrowUp") to = row(-ROW).filter((button) => left(button) <= left(own) + 1).pop();
  else if (event.key === "ArrowRight") to = row(0).find((button) => left(button) > left(own));
  else if (event.key === "ArrowLeft") to = row(0).filter((button) => left(button) < left(own)).pop();
  else if (event.key === " ") zoomFlame(node);
  else if (event.key !== "Enter" || at < 0) return;
  if (event.key !== "Enter") event.preventDefault();
  event.stopPropagation();
  if (to) { own.tabIndex = -1; to.tabIndex = 0; to.focus(); }
}

function emptyText() {
  const { mode, view } = state;
  if (!view.blocks.count && !view.sums.count) return "No blocks were recorded here.";
  if (mode === "moment") return "Nothing was live at this moment.";
  if (mode === "peak") return "Nothing was live in this span.";
  return { allocated: "Nothing was allocated in this span.", temporary: "Nothing was both allocated and freed in this span.", kept: "Nothing that was allocated in this span outlived it." }[mode];
}

const MODES = [
  ["peak", "At peak", "Live when most was, in the selected span or the whole run"],
  ["moment", "At moment", "Live at the selected moment"],
  ["kept", "Kept", "Allocated in the span and still live after it"],
  ["temporary", "Temporary", "Allocated and freed within the span"],
  ["allocated", "Allocated", "All that was allocated in the span, freed or not"],
];

function drawScope(found) {
  choice($("modes"), "radio", MODES, state.mode, (mode) => change({ mode }));
  const { from, to } = scope(), { ns } = results(), window = state.mode === "moment" ? state.to - state.from : to - from;
  const where = state.span ? "between " + format.moment(from, to - from) + " and " + format.moment(to, to - from) : "in the whole run";
  const what = {
    peak: "live at " + format.moment(ns, window) + ", the peak " + where, moment: "live at " + format.moment(ns, window),
    kept: "allocated " + where + " and live after it", temporary: "allocated and freed " + where, allocated: "allocated " + where,
  }[state.mode];
  const line = [element("b", {}, format.bytes(found.total)), " in " + format.count(found.count) + " blocks, " + what];
  if (found.summed >= 1) line.push(" (of it " + format.bytes(found.summed) + " from sums)");
  if (!state.recording.hasStacks) line.push(" · no stacks in this trace: record with gpushim run --stacks");
  $("scope").replaceChildren(...line);
  $("scope").title = $("scope").textContent;
  const button = $("frames");
  button.hidden = !state.recording.hasStacks;
  button.setAttribute("aria-pressed", String(!state.aboveLine));
}
