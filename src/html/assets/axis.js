// Scales and ticks. All charts share the same margins, so that a moment is at the same place in each.
const LEFT = 74, RIGHT = 14;

const scale = {
  x(ns, width) { return LEFT + (ns - state.from) / (state.to - state.from) * (width - LEFT - RIGHT); },
  ns(x, width) { return state.from + (x - LEFT) / Math.max(1, width - LEFT - RIGHT) * (state.to - state.from); },
};

function timeTicks(from, to, most) {
  const rough = (to - from) / Math.max(1, most);
  const steps = [];
  for (let power = 1; power < 1e10; power *= 10) steps.push(power, 2 * power, 5 * power);
  steps.push(15e9, 30e9, 6e10, 12e10, 3e11, 6e11, 9e11, 18e11, 36e11, 72e11, 216e11, 432e11, 864e11);
  steps.sort((a, b) => a - b);
  const step = steps.find((step) => step >= rough) || rough;
  const digits = Math.max(0, Math.min(9, Math.ceil(9 - Math.log10(step) - 1e-9)));
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    ticks.push([at, format.clock(at, digits)]);
  }
  return ticks;
}

// Powers of two, so that ticks are whole numbers of a unit.
function byteTicks(top, most) {
  let step = 1;
  while (top / step > most) step *= 2;
  const ticks = [];
  for (let at = 0; at <= top; at += step) {
    const unit = at ? Math.min(UNITS.length - 1, Math.floor(Math.log2(at) / 10)) : 0;
    const value = at / 1024 ** unit;
    ticks.push([at, at ? (Number.isInteger(value) ? value : value.toFixed(value * 2 % 1 ? 2 : 1)) + " " + UNITS[unit] : "0"]);
  }
  return ticks;
}

function drawRuler() {
  const { context, width } = begin($("ruler"));
  context.fillStyle = colours.soft;
  context.textAlign = "center";
  let free = LEFT - 20;
  for (const [ns, label] of timeTicks(state.from, state.to, (width - LEFT - RIGHT) / 110)) {
    const x = scale.x(ns, width), half = context.measureText(label).width / 2;
    if (x - half < free || x + half > width) continue;
    context.fillText(label, x, 11);
    free = x + half + 12;
  }
}

function drawGrid(context, width, height) {
  context.fillStyle = colours.grid;
  for (const [ns] of timeTicks(state.from, state.to, (width - LEFT - RIGHT) / 110)) {
    context.fillRect(Math.round(scale.x(ns, width)), 0, 1, height);
  }
}
