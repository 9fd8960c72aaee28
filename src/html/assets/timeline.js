// Memory over time: who held it as areas, least and most as a band, what was held above as lines.
const LINES = { "reserved": [6, 3], "framework reserved": [], "driver": [1, 3], "allocated": [2, 2], "framework allocated": [2, 2] };
// Shown as lines: what is held, not what is only rounded.
const isLine = (curve) => ["reserved", "framework reserved", "driver"].includes(curve.name);

// The average bytes of each group in each of so many columns of the window.
function areas(view, groups, from, to, columns) {
  const each = (to - from) / columns, { blocks, sums } = view;
  const change = Array.from({ length: 9 }, () => new Float64Array(columns + 2));
  // From a moment on there is so much more: a part of the column that it falls into, all of the next.
  const step = (row, ns, bytes) => {
    const place = (ns - from) / each;
    if (place >= columns) return;
    if (place <= 0) { row[0] += bytes; return; }
    const index = Math.floor(place), late = place - index;
    row[index] += bytes * (1 - late);
    row[index + 1] += bytes * late;
  };
  for (let index = 0; index < blocks.count && blocks.from[index] < to; index++) {
    if (blocks.to[index] <= from) continue;
    const row = change[groups.of[blocks.stack[index]]];
    step(row, blocks.from[index], blocks.size[index]);
    step(row, blocks.to[index], -blocks.size[index]);
  }
  for (let index = 0; index < sums.count; index++) {
    const bytes = sums.bytes[index] - sums.freedBytes[index];
    if (bytes) step(change[groups.of[sums.stack[index]]], (sums.stretch[index] + 1) * sums.width, bytes);
  }
  for (const row of change) for (let index = 1; index < columns; index++) row[index] += row[index - 1];
  return change;
}

function envelope(view, curve, from, to, columns) {
  const each = (to - from) / columns;
  return Array.from({ length: columns }, (_, index) => query.extremes(view, curve, from + index * each, from + (index + 1) * each - 1e-6));
}

// The curve's edge as a path: left to right along one side of each column.
function edge(context, points, side, x0, y) {
  points.forEach((point, index) => {
    context.lineTo(x0 + index, y(point[side]));
    context.lineTo(x0 + index + 1, y(point[side]));
  });
}

function drawTimeline() {
  const canvas = $("timeline"), { context, width, height } = begin(canvas);
  const { view, groups, from, to } = state;
  const columns = Math.max(1, Math.floor(width - LEFT - RIGHT)), top = 10, bottom = height - 6;
  const band = envelope(view, view.live, from, to, columns);
  const lines = view.others.filter(isLine).map((curve) => ({ curve, points: envelope(view, curve, from, to, columns) }));
  const highest = (points) => points.reduce((most, point) => Math.max(most, point.most), 0);
  const own = highest(band);
  // A line far above would press what matters flat.
  const shown = lines.filter(({ points }) => highest(points) > 0 && highest(points) <= Math.max(own, 1) * 4);
  const most = Math.max(own, ...shown.map(({ points }) => highest(points)), 1) * 1.06;
  const y = (bytes) => bottom - bytes / most * (bottom - top);
  context.textAlign = "right";
  for (const [bytes, label] of byteTicks(most, 5)) {
    context.fillStyle = bytes ? colours.grid : colours.line;
    context.fillRect(LEFT, Math.round(y(bytes)), columns, 1);
    context.fillStyle = colours.soft;
    context.fillText(label, LEFT - 8, Math.max(7, y(bytes)));
  }
  drawGrid(context, width, height);
  drawLost(context, width, height);
  context.beginPath();
  edge(context, band, "most", LEFT, y);
  for (let index = columns - 1; index >= 0; index--) {
    context.lineTo(LEFT + index + 1, y(band[index].least));
    context.lineTo(LEFT + index, y(band[index].least));
  }
  context.fillStyle = colours["accent-soft"];
  context.fill();
  drawAreas(context, view, groups, columns, y);
  context.beginPath();
  edge(context, band, "most", LEFT, y);
  context.strokeStyle = colours.text;
  context.lineWidth = 1;
  context.stroke();
  drawLines(context, shown, width, y, top);
  canvas.setAttribute("aria-label", view.title + " from " + format.moment(from, to - from) + " to " + format.moment(to, to - from) +
    ": at most " + format.bytes(own) + ", at the end of it " + format.bytes(band[columns - 1].most) + ".");
}

function drawAreas(context, view, groups, columns, y) {
  const rows = areas(view, groups, state.from, state.to, columns);
  const base = new Float64Array(columns);
  for (let group = 0; group < 9; group++) {
    const row = rows[group];
    context.beginPath();
    for (let index = 0; index < columns; index++) {
      context.lineTo(LEFT + index, y(base[index] + Math.max(0, row[index])));
      context.lineTo(LEFT + index + 1, y(base[index] + Math.max(0, row[index])));
    }
    for (let index = columns - 1; index >= 0; index--) {
      context.lineTo(LEFT + index + 1, y(base[index]));
      context.lineTo(LEFT + index, y(base[index]));
    }
    context.fillStyle = colours.groups[group];
    context.globalAlpha = state.lit && !state.lit.groups.has(group) ? 0.25 : 0.92;
    context.fill();
    for (let index = 0; index < columns; index++) base[index] += Math.max(0, row[index]);
  }
  context.globalAlpha = 1;
}

function drawLines(context, lines, width, y, top) {
  const labels = [];
  for (const { curve, points } of lines) {
    context.beginPath();
    edge(context, points, "most", LEFT, y);
    context.strokeStyle = colours.soft;
    context.lineWidth = 1.2;
    context.setLineDash(LINES[curve.name]);
    context.stroke();
    labels.push([y(points[points.length - 1].most), curve.name]);
  }
  context.setLineDash([]);
  context.textAlign = "right";
  // Above their line, or below where another is too near.
  let last = -Infinity;
  for (const [at, name] of labels.sort((a, b) => a[0] - b[0])) {
    let place = Math.max(top - 2, at - 8);
    if (place < last + 13) place = last + 13;
    last = place;
    // A rim, so that what lies below stays visible.
    context.strokeStyle = colours.panel;
    context.lineWidth = 3;
    context.strokeText(name, width - RIGHT - 5, place);
    context.fillStyle = colours.soft;
    context.fillText(name, width - RIGHT - 5, place);
  }
}

// The time whose events are overwritten, hatched.
function drawLost(context, width, height) {
  const { summary } = state.recording;
  if (!summary.events.wrapped) return;
  const x = Math.min(width - RIGHT, scale.x(summary.first_ns, width));
  if (x <= LEFT) return;
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, x - LEFT, height);
  context.clip();
  context.strokeStyle = colours.line;
  context.beginPath();
  for (let at = LEFT - height; at < x; at += 8) { context.moveTo(at, height); context.lineTo(at + height, 0); }
  context.stroke();
  context.restore();
}

// The whole run, and where in it the window is.
function drawMap() {
  const { context, width, height } = begin($("map"));
  const { view, recording } = state, columns = Math.max(1, Math.floor(width - LEFT - RIGHT));
  const points = envelope(view, view.live, 0, recording.end, columns);
  const most = Math.max(1, view.peak);
  context.fillStyle = colours.region;
  context.fillRect(LEFT, 0, columns, height);
  context.fillStyle = colours.faint;
  points.forEach((point, index) => {
    const high = point.most / most * (height - 4);
    context.fillRect(LEFT + index, height - high, 1, high);
  });
  const x = (ns) => LEFT + ns / recording.end * columns;
  const [left, right] = [x(state.from), x(state.to)];
  context.fillStyle = colours.panel;
  context.globalAlpha = 0.68;
  context.fillRect(LEFT, 0, left - LEFT, height);
  context.fillRect(right, 0, LEFT + columns - right, height);
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, 0.75, Math.max(3, right - left - 1.5), height - 1.5);
  context.fillStyle = colours.soft;
  context.textAlign = "right";
  context.fillText("whole run", LEFT - 8, height / 2);
  for (const note of recording.notes) {
    if (isFailure(note)) { context.fillStyle = colours.warn; context.fillRect(x(note.ns) - 1, 0, 2, height); }
  }
}

const isFailure = (note) => note.kind.includes("out-of-memory") || note.kind === "failed" || note.result !== 0;

function drawOverlay() {
  const { context, width, height } = begin($("overlay"));
  const right = width - RIGHT;
  const clamp = (x) => Math.max(LEFT, Math.min(right, x));
  for (const note of state.recording.notes) {
    const x = scale.x(note.ns, width);
    if (x < LEFT || x > right || !(isFailure(note) || note.kind === "mark")) continue;
    context.fillStyle = isFailure(note) ? colours.warn : colours.faint;
    context.fillRect(x - 0.5, 0, 1, height - 20);
    context.beginPath();
    context.moveTo(x - 5, 0);
    context.lineTo(x + 5, 0);
    context.lineTo(x, 7);
    context.fill();
  }
  if (state.span) {
    const from = clamp(scale.x(state.span.from, width)), to = clamp(scale.x(state.span.to, width));
    context.fillStyle = colours["accent-soft"];
    context.fillRect(from, 0, to - from, height - 20);
    context.fillStyle = colours.accent;
    context.fillRect(from - 0.5, 0, 1, height - 20);
    context.fillRect(to - 0.5, 0, 1, height - 20);
  }
  const x = scale.x(state.moment, width);
  if (x >= LEFT - 1 && x <= right + 1) {
    context.fillStyle = colours.accent;
    context.fillRect(x - 0.75, 0, 1.5, height - 20);
    context.beginPath();
    context.arc(x, height - 20, 3.5, 0, 7);
    context.fill();
  }
  if (state.hover !== null) {
    context.fillStyle = colours.faint;
    context.fillRect(scale.x(state.hover, width) - 0.5, 0, 1, height - 20);
  }
}
