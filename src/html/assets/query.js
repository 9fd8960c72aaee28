// Questions to a view: who held what at a moment, who allocated what in a span.
const query = {
  // Bytes, blocks and the first time by stack; `summed` are the bytes that come from sums.
  empty(view) {
    const count = view.recording.stacks.count;
    return { bytes: new Float64Array(count), blocks: new Float64Array(count), oldest: new Float64Array(count).fill(Infinity), summed: 0, total: 0, count: 0 };
  },
  finish(found) {
    for (let stack = 0; stack < found.bytes.length; stack++) { found.total += found.bytes[stack]; found.count += found.blocks[stack]; }
    return found;
  },
  add(found, stack, bytes, blocks, from) {
    found.bytes[stack] += bytes;
    found.blocks[stack] += blocks;
    if (from < found.oldest[stack]) found.oldest[stack] = from;
  },
  liveAt(view, ns) {
    const found = query.empty(view), { blocks, sums } = view;
    for (let index = 0; index < blocks.count && blocks.from[index] <= ns; index++) {
      if (blocks.to[index] > ns) query.add(found, blocks.stack[index], blocks.size[index], 1, blocks.from[index]);
    }
    // What was live at the peak was all kept exactly; at other moments the sums say what was live at the
    // beginning of the stretch.
    if (ns !== view.peakNs) {
      const until = ns >= view.recording.end ? Infinity : Math.floor(ns / sums.width);
      for (let index = 0; index < sums.count; index++) {
        if (sums.stretch[index] >= until) continue;
        const bytes = sums.bytes[index] - sums.freedBytes[index];
        query.add(found, sums.stack[index], bytes, sums.blocks[index] - sums.freedBlocks[index], Infinity);
        found.summed += bytes;
      }
    }
    return query.finish(found);
  },
  // `mode`: allocated in the span; of that freed within it (temporary); of that live after it (kept).
  inSpan(view, from, to, mode) {
    const found = query.empty(view), { blocks, sums } = view;
    for (let index = 0; index < blocks.count && blocks.from[index] <= to; index++) {
      if (blocks.from[index] < from) continue;
      const isFreed = blocks.to[index] <= to;
      if (mode === "allocated" || isFreed === (mode === "temporary")) {
        query.add(found, blocks.stack[index], blocks.size[index], 1, blocks.from[index]);
      }
    }
    // By stack, for the stretches that begin in the span: what was freed there is taken to be what was
    // allocated there.
    const first = Math.ceil(from / sums.width), end = Math.floor(to / sums.width);
    for (let index = 0; index < sums.count;) {
      const stack = sums.stack[index];
      let bytes = 0, count = 0, freed = 0, freedCount = 0;
      for (; index < sums.count && sums.stack[index] === stack; index++) {
        if (sums.stretch[index] < first || sums.stretch[index] > end) continue;
        bytes += sums.bytes[index];
        count += sums.blocks[index];
        freed += sums.freedBytes[index];
        freedCount += sums.freedBlocks[index];
      }
      if (mode === "temporary") { bytes = Math.min(bytes, freed); count = Math.min(count, freedCount); }
      if (mode === "kept") { bytes = Math.max(0, bytes - freed); count = Math.max(0, count - freedCount); }
      if (!count && !bytes) continue;
      query.add(found, stack, bytes, count, Infinity);
      found.summed += bytes;
    }
    return query.finish(found);
  },
  // Least and most of a curve in a span.
  extremes(view, curve, from, to) {
    const width = view.recording.bucket, last = curve.max.length - 1;
    const begin = Math.max(0, Math.min(last, Math.floor(from / width)));
    const end = Math.max(begin, Math.min(last, Math.floor(to / width)));
    let least = Infinity, most = 0, at = begin;
    for (let index = begin; index <= end; index++) {
      if (curve.min[index] < least) least = curve.min[index];
      if (curve.max[index] > most) { most = curve.max[index]; at = index; }
    }
    return { least, most, at };
  },
  // The moment of the peak in a span: exact for the run's own; else the moment of those at which an exact
  // block begins that holds most, in the stretch where the curve is highest.
  peakIn(view, from, to) {
    if (from <= view.peakNs && view.peakNs <= to) return view.peakNs;
    const width = view.recording.bucket, { at } = query.extremes(view, view.live, from, to);
    const begin = Math.max(from, at * width), end = Math.min(to, (at + 1) * width);
    const changes = [], { blocks } = view;
    for (let index = 0; index < blocks.count && blocks.from[index] <= end; index++) {
      if (blocks.to[index] <= begin) continue;
      changes.push([Math.max(begin, blocks.from[index]), blocks.size[index]]);
      if (blocks.to[index] <= end) changes.push([blocks.to[index], -blocks.size[index]]);
    }
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let now = 0, most = -1, moment = begin;
    for (const [ns, bytes] of changes) {
      now += bytes;
      if (now > most) { most = now; moment = ns; }
    }
    return moment;
  },
  valueAt(view, curve, ns) {
    const index = Math.min(curve.max.length - 1, Math.floor(ns / view.recording.bucket));
    return curve.max[index];
  },
};

// Which functions have a colour: the eight that held most at the peak, or allocated most if nothing was live.
function groupsOf(view) {
  const { stacks, frames, texts } = view.recording;
  let found = query.liveAt(view, view.peakNs);
  if (!found.total) found = query.inSpan(view, 0, view.recording.end, "allocated");
  const totals = new Map();
  for (let stack = 0; stack < stacks.count; stack++) {
    if (found.bytes[stack] > 0) totals.set(stacks.blame[stack], (totals.get(stacks.blame[stack]) || 0) + found.bytes[stack]);
  }
  const top = [...totals].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([blame]) => blame);
  const list = top.map((blame) => ({ blame, name: blame ? texts[frames.name[blame - 1]] : "unknown", place: blame ? texts[frames.place[blame - 1]] : "" }));
  // Of functions of one name, the place tells them apart.
  for (const one of list) {
    const isAlone = list.filter((other) => other.name === one.name).length === 1;
    one.label = one.name + (isAlone || !one.place ? "" : " " + format.base(one.place));
  }
  const of = new Uint8Array(stacks.count);
  for (let stack = 0; stack < stacks.count; stack++) {
    const at = top.indexOf(stacks.blame[stack]);
    of[stack] = at < 0 ? 8 : at;
  }
  return { list, of, hasOther: totals.size > 8 || of.includes(8) };
}
