// The program's ranges over time, a lane for each thread and depth.
const LANE = 16, LANES_MOST = 5;

// Lanes of the threads that have most ranges, outer ranges first.
function lanesOf(recording) {
  if (recording.lanes) return recording.lanes;
  const { phases } = recording, threads = new Map();
  for (let index = 0; index < phases.count; index++) {
    const thread = phases.thread[index], depth = phases.depth[index];
    if (!threads.has(thread)) threads.set(thread, { thread, total: 0, depths: [] });
    const found = threads.get(thread);
    found.total += phases.to[index] - phases.from[index];
    (found.depths[depth] ||= []).push(index);
  }
  const lanes = [];
  for (const { thread, depths } of [...threads.values()].sort((a, b) => b.total - a.total)) {
    const room = LANES_MOST - lanes.length;
    depths.filter(Boolean).slice(0, room).forEach((indexes, at) => lanes.push({ thread, indexes, isFirst: at === 0 }));
  }
  return recording.lanes = lanes;
}

function threadName(recording, thread) {
  const named = recording.head.threads.find(([id]) => id === thread);
  return named ? recording.texts[named[1]] : thread ? "thread " + thread : "ranges";
}

// A family has one colour wherever it is; grey shades, so that the areas' colours keep their meaning.
function familyShade(family) { return 0.12 + (family * 37 % 7) / 7 * 0.3; }

function drawPhases() {
  const canvas = $("phases"), { recording, from, to } = state, lanes = lanesOf(recording);
  canvas.hidden = !lanes.length;
  if (!lanes.length) return;
  canvas.style.height = lanes.length * LANE + 6 + "px";
  const { context, width, height } = begin(canvas), { phases, texts } = recording;
  drawGrid(context, width, height);
  lanes.forEach((lane, row) => {
    const top = 3 + row * LANE;
    if (lane.isFirst) {
      context.fillStyle = colours.soft;
      context.textAlign = "right";
      const name = threadName(recording, lane.thread);
      context.fillText(context.measureText(name).width > LEFT - 12 && lane.thread ? String(lane.thread) : fitted(context, name, LEFT - 12), LEFT - 8, top + LANE / 2);
    }
    context.textAlign = "left";
    let filled = LEFT;
    for (const index of lane.indexes) {
      if (phases.to[index] < from || phases.from[index] > to) continue;
      const left = Math.max(filled, scale.x(phases.from[index], width));
      const right = Math.min(width - RIGHT, scale.x(phases.to[index], width));
      // What is narrower than a point shares one with its neighbours.
      if (right - filled < 0.7) continue;
      context.globalAlpha = familyShade(phases.family[index]);
      context.fillStyle = colours.text;
      context.fillRect(left, top, Math.max(0.8, right - left - (right - left > 3 ? 1 : 0)), LANE - 2);
      context.globalAlpha = 1;
      filled = right;
      // A few letters of a name help nobody.
      const name = texts[phases.name[index]], short = fitted(context, name, right - left - 8);
      const label = short === name || short.length > 7 ? short : "";
      if (label) { context.fillStyle = colours.text; context.fillText(label, left + 4, top + LANE / 2 - 0.5); }
    }
  });
  canvas.setAttribute("aria-label", phases.count + " ranges of the program in " + lanes.length + " lanes" +
    (recording.iterations.length ? "; " + recording.iterations.length + " iterations." : "."));
}

function phaseAt(x, y, width) {
  const { recording } = state, lane = lanesOf(recording)[Math.floor((y - 3) / LANE)];
  if (!lane || x < LEFT) return null;
  const ns = scale.ns(x, width), near = (state.to - state.from) / (width - LEFT - RIGHT);
  let best = null;
  for (const index of lane.indexes) {
    const { from, to } = recording.phases;
    if (from[index] - near <= ns && ns <= to[index] + near && (best === null || to[index] - from[index] > to[best] - from[best])) best = index;
  }
  if (best === null) return null;
  return { name: recording.texts[recording.phases.name[best]], from: recording.phases.from[best], to: recording.phases.to[best], thread: lane.thread };
}
