// Pointer and keys on the charts.
const KEYS = [
  ["drag", "select a span"], ["click", "select a moment; on a block, highlight its stack; on a range, select it"],
  ["wheel, + −", "zoom"], ["Shift + wheel on blocks", "zoom into addresses"], ["← →", "pan; with Shift, move the moment"],
  ["0, double-click", "show the whole run"], ["z", "zoom to the selection"], ["[ ]", "previous, next iteration"], ["p", "go to the peak"],
  ["Esc", "clear selection and highlight"], ["t", "light or dark"], ["?", "this list"],
];

function listenToPointer() {
  const stack = $("stack");
  let drag = null;
  const at = (event) => {
    const box = stack.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width };
  };
  const clamped = (x, width) => Math.max(0, Math.min(state.recording.end, scale.ns(x, width)));
  stack.addEventListener("wheel", (event) => {
    if (event.ctrlKey && !event.deltaY) return;
    event.preventDefault();
    const { x, width } = at(event), blocks = $("blocks").getBoundingClientRect();
    const amount = Math.max(-1, Math.min(1, (event.deltaY || 0) / 120)), sideways = event.deltaX || 0;
    if (event.shiftKey && event.clientY >= blocks.top && event.clientY <= blocks.bottom) {
      zoomAddresses(Math.exp((amount || Math.sign(sideways)) * 0.35), event.clientY - blocks.top, blocks.height);
    } else if (Math.abs(sideways) > Math.abs(event.deltaY)) pan(sideways / 1000);
    else zoom(Math.exp(amount * 0.35), scale.ns(Math.max(LEFT, x), width));
  }, { passive: false });
  stack.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const { x, width } = at(event);
    drag = { x, ns: clamped(x, width) };
    stack.setPointerCapture(event.pointerId);
  });
  stack.addEventListener("pointermove", (event) => {
    const { x, width } = at(event);
    if (drag && Math.abs(x - drag.x) > 4) {
      drag.moved = true;
      const ns = clamped(x, width);
      change({ span: { from: Math.min(drag.ns, ns), to: Math.max(drag.ns, ns) } });
      tip();
      return;
    }
    change({ hover: x >= LEFT && x <= width - RIGHT ? clamped(x, width) : null });
    tip(event, hoverLines(event, x, width));
  });
  stack.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { x, width } = at(event), { moved, ns } = drag;
    drag = null;
    if (moved) selectSpan(ns, clamped(x, width));
    else press(event, x, width);
  });
  stack.addEventListener("pointercancel", () => { drag = null; });
  stack.addEventListener("pointerleave", () => { change({ hover: null }); tip(); });
  stack.addEventListener("dblclick", () => { setWindow(0, state.recording.end); Object.assign(layoutOf(state.view), { from: 0, to: layoutOf(state.view).total }); drawBlocks(); });
  listenToMap();
}

function listenToMap() {
  const map = $("map");
  let grabbed = false;
  const move = (event) => {
    const box = map.getBoundingClientRect(), columns = box.width - LEFT - RIGHT, length = state.to - state.from;
    const ns = (event.clientX - box.left - LEFT) / columns * state.recording.end;
    setWindow(ns - length / 2, ns + length / 2);
  };
  map.addEventListener("pointerdown", (event) => { grabbed = true; map.setPointerCapture(event.pointerId); move(event); });
  map.addEventListener("pointermove", (event) => { if (grabbed) move(event); });
  map.addEventListener("pointerup", () => { grabbed = false; });
  map.addEventListener("pointercancel", () => { grabbed = false; });
}

// Where in a canvas of the stack a pointer is; null if it is in another.
function inside(event, id) {
  const box = $(id).getBoundingClientRect();
  return event.clientY >= box.top && event.clientY < box.bottom ? { y: event.clientY - box.top, height: box.height } : null;
}

function press(event, x, width) {
  const phases = inside(event, "phases"), blocks = inside(event, "blocks");
  const phase = phases && phaseAt(x, phases.y, width);
  if (phase) { selectSpan(phase.from, phase.to); return; }
  const block = blocks && blockAt(x, blocks.y, width, blocks.height);
  selectMoment(scale.ns(x, width));
  if (block !== null && blocks) lightStacks(blameName(state.view.blocks.stack[block]), [state.view.blocks.stack[block]]);
}

function blameName(stack) {
  const blame = state.recording.stacks.blame[stack];
  return blame ? frameName(blame - 1) : "unknown";
}

function hoverLines(event, x, width) {
  if (x < LEFT || x > width - RIGHT) return null;
  const { view } = state, ns = scale.ns(x, width), window = state.to - state.from;
  const phases = inside(event, "phases"), blocks = inside(event, "blocks");
  if (phases) {
    const phase = phaseAt(x, phases.y, width);
    return phase && [phase.name || "(no name)", format.span(phase.to - phase.from) + " from " + format.moment(phase.from, window) + " · " + threadName(state.recording, phase.thread),
      "peak " + format.bytes(query.extremes(view, view.live, phase.from, phase.to).most)];
  }
  if (blocks) {
    const index = blockAt(x, blocks.y, width, blocks.height);
    if (index === null) return null;
    const { from, to, size, address, stack } = view.blocks, blame = state.recording.stacks.blame[stack[index]];
    return [format.bytes(size[index]) + " · " + blameName(stack[index]), blame ? framePlace(blame - 1) : "", format.address(address[index]),
      "from " + format.moment(from[index], window) + (to[index] === Infinity ? ", live at the end" : ", lived " + format.span(to[index] - from[index]))].filter(Boolean);
  }
  const each = window / (width - LEFT - RIGHT), line = [format.moment(ns, window)];
  const live = query.extremes(view, view.live, ns, ns + each);
  line.push(view.title.toLowerCase() + " " + (live.least === live.most ? format.bytes(live.most) : format.bytes(live.least) + " to " + format.bytes(live.most)));
  for (const curve of view.others) line.push(curve.name + " " + format.bytes(query.extremes(view, curve, ns, ns + each).most));
  return line;
}

function stepIteration(by) {
  const { iterations } = state.recording;
  if (!iterations.length) return;
  const at = state.span ? state.span.from : state.moment;
  const now = iterations.findIndex((iteration) => iteration.from <= at && at < iteration.to);
  const next = iterations[Math.max(0, Math.min(iterations.length - 1, state.span || now < 0 ? now + by : now))];
  selectSpan(next.from, next.to);
  showSpan(next.from, next.to);
}

function listenToKeys() {
  $("key-list").replaceChildren(...KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]));
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("select, input, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    // Without anything to show only these two make sense.
    if (!state.view && event.key !== "t" && event.key !== "?") return;
    const { span, view, recording } = state, each = (state.to - state.from) / 100;
    const acts = {
      ArrowLeft: () => event.shiftKey ? selectMoment(state.moment - each) : pan(-0.15),
      ArrowRight: () => event.shiftKey ? selectMoment(state.moment + each) : pan(0.15),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "−": () => zoom(1 / 0.6),
      "0": () => setWindow(0, recording.end),
      z: () => span && setWindow(span.from - (span.to - span.from) * 0.05, span.to + (span.to - span.from) * 0.05),
      "[": () => stepIteration(-1), "]": () => stepIteration(1),
      p: () => { selectMoment(view.peakNs); change({ mode: "peak", span: null }); },
      Escape: clearSelection, t: () => $("theme").click(), "?": () => $("keys").showModal(),
    };
    if (event.target === $("charts")) Object.assign(acts, { Home: () => setWindow(0, state.to - state.from), End: () => setWindow(recording.end - (state.to - state.from), recording.end) });
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
