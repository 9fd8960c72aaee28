// Blocks over time and addresses. Addresses in which nothing ever lay are left out.
const CHUNK = 2 * 1024 * 1024, GAP = 0.004;

function layoutOf(view) {
  if (view.layout) return view.layout;
  const { blocks } = view, order = Array.from({ length: blocks.count }, (_, index) => index);
  order.sort((a, b) => blocks.address[a] - blocks.address[b]);
  const regions = [];
  for (const index of order) {
    const begin = Math.floor(blocks.address[index] / CHUNK) * CHUNK;
    const end = Math.ceil((blocks.address[index] + Math.max(1, blocks.size[index])) / CHUNK) * CHUNK;
    const last = regions[regions.length - 1];
    if (last && begin <= last.end) last.end = Math.max(last.end, end); else regions.push({ begin, end });
  }
  const used = regions.reduce((sum, region) => sum + region.end - region.begin, 0);
  const gap = used * Math.min(GAP, 0.2 / Math.max(1, regions.length));
  const place = new Float64Array(blocks.count);
  let at = 0, next = 0;
  for (const region of regions) {
    region.at = at;
    for (; next < order.length && blocks.address[order[next]] < region.end; next++) {
      place[order[next]] = at + blocks.address[order[next]] - region.begin;
    }
    at += region.end - region.begin + gap;
  }
  return view.layout = { regions, place, total: Math.max(1, at - gap), from: 0, to: Math.max(1, at - gap) };
}

function drawBlocks() {
  const canvas = $("blocks"), { context, width, height, ratio } = begin(canvas), { view } = state;
  const layout = layoutOf(view), columns = width - LEFT - RIGHT;
  if (!view.blocks.count) {
    context.fillStyle = colours.soft;
    context.textAlign = "left";
    context.fillText("No blocks were recorded here.", LEFT + 8, height / 2);
    return;
  }
  const wide = Math.max(1, Math.round(columns * ratio)), high = Math.round(height * ratio);
  context.putImageData(paintBlocks(view, layout, wide, high), Math.round(LEFT * ratio), 0);
  context.textAlign = "right";
  context.fillStyle = colours.soft;
  // What is alike in all addresses says nothing: the last eight digits.
  for (let at = 8; at < height - 4; at += 32) {
    const place = layout.from + at / height * (layout.to - layout.from);
    const region = layout.regions.find((region) => place < region.at + region.end - region.begin);
    if (!region || place < region.at) continue;
    const address = region.begin + Math.floor((place - region.at) / 4096) * 4096;
    context.fillText("…" + address.toString(16).slice(-8), LEFT - 8, at);
  }
  canvas.setAttribute("aria-label", format.count(view.blocks.count) + " blocks over time and addresses, in " +
    layout.regions.length + " ranges of addresses" + (state.lit ? "; highlighted: " + state.lit.label : "") + ".");
}

// The picture, point by point: hundreds of thousands of rectangles are too many for a canvas to fill.
function paintBlocks(view, layout, wide, high) {
  const image = new ImageData(wide, high), points = new Uint32Array(image.data.buffer);
  const { blocks } = view, { from, to, groups, lit } = state;
  const column = wide / (to - from), row = high / (layout.to - layout.from);
  const empty = pixel(colours.panel), ground = pixel(colours.region);
  points.fill(empty);
  for (const region of layout.regions) {
    const top = Math.max(0, Math.round((region.at - layout.from) * row));
    const bottom = Math.min(high, Math.round((region.at + region.end - region.begin - layout.from) * row));
    if (bottom > top) points.fill(ground, top * wide, bottom * wide);
  }
  const plain = colours.groups.map((colour) => pixel(colour));
  const shade = colours.groups.map((colour) => pixel(colour, 0.22, colours.panel));
  const dim = colours.groups.map((colour) => pixel(colour, 0.8, colours.panel));
  for (let index = 0; index < blocks.count && blocks.from[index] < to; index++) {
    if (blocks.to[index] <= from) continue;
    const left = Math.max(0, Math.floor((blocks.from[index] - from) * column));
    const right = Math.min(wide, Math.max(left + 1, Math.floor((Math.min(blocks.to[index], to) - from) * column)));
    const begin = (layout.place[index] - layout.from) * row;
    const top = Math.max(0, Math.floor(begin));
    const bottom = Math.min(high, Math.max(top + 1, Math.floor(begin + blocks.size[index] * row)));
    if (right <= left || bottom <= top || begin + blocks.size[index] * row < 0) continue;
    const group = groups.of[blocks.stack[index]];
    // Neighbours of one colour are told apart by two shades of it.
    const colour = lit && !lit.has[blocks.stack[index]] ? dim[group] : (blocks.stack[index] + (blocks.address[index] / 512 & 1)) & 1 ? shade[group] : plain[group];
    for (let line = top; line < bottom; line++) points.fill(colour, line * wide + left, line * wide + right);
  }
  return image;
}

function blockAt(x, y, width, height) {
  const { view } = state, layout = layoutOf(view), { blocks } = view;
  if (x < LEFT || x > width - RIGHT) return null;
  const ns = scale.ns(x, width), near = (state.to - state.from) / (width - LEFT - RIGHT);
  const place = layout.from + y / height * (layout.to - layout.from), high = (layout.to - layout.from) / height;
  let best = null;
  for (let index = 0; index < blocks.count && blocks.from[index] <= ns + near; index++) {
    const below = place - layout.place[index];
    if (blocks.to[index] < ns - near || below < -high / 2 || below > Math.max(blocks.size[index], high)) continue;
    // The one that is really under the pointer before one beside it.
    const isIn = blocks.from[index] <= ns && ns < blocks.to[index] && below >= 0 && below < blocks.size[index];
    if (best === null || isIn || !best.isIn) best = { index, isIn };
    if (isIn) break;
  }
  return best && best.index;
}

function zoomAddresses(factor, y, height) {
  const layout = layoutOf(state.view), at = layout.from + y / height * (layout.to - layout.from);
  const length = Math.max(4096, Math.min(layout.total, (layout.to - layout.from) * factor));
  layout.from = Math.max(0, Math.min(layout.total - length, at - y / height * length));
  layout.to = layout.from + length;
  drawBlocks();
}
