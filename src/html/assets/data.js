// From the text in the page to arrays: base64, deflate, columns of variable-length integers.
async function unpack(element) {
  const text = element.textContent;
  let deflated;
  if (Uint8Array.fromBase64) {
    deflated = Uint8Array.fromBase64(text);
  } else {
    const binary = atob(text);
    deflated = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at++) deflated[at] = binary.charCodeAt(at);
  }
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let at = 4 + length;
  for (const { name, count, bytes: size, delta } of head.columns) {
    columns[name] = column(bytes, at, count, delta);
    at += size;
  }
  return { head, columns };
}

function column(bytes, at, count, delta) {
  const numbers = new Float64Array(count);
  let before = 0;
  for (let index = 0; index < count; index++) {
    let byte = bytes[at++], word = byte & 127, scale = 128;
    while (byte > 127) {
      byte = bytes[at++];
      word += (byte & 127) * scale;
      scale *= 128;
    }
    if (delta) word = before += word % 2 ? -(word + 1) / 2 : word / 2;
    numbers[index] = word;
  }
  return numbers;
}

// A recording as the page works on it.
function recordingOf({ head, columns: c }) {
  const summary = head.report.summary;
  const end = Math.max(summary.last_ns, 1);
  const ints = (column) => Int32Array.from(column);
  const stackNode = ints(c.stack_node), stackBlame = ints(c.stack_blame), stackOwner = ints(c.stack_owner);
  const recording = {
    head, summary, end, texts: head.texts, problems: head.problems, bucket: head.bucket_ns,
    hasStacks: head.has_stacks,
    frames: { name: ints(c.frame_name), place: ints(c.frame_place), sort: ints(c.frame_sort), above: ints(c.frame_above) },
    nodes: { parent: ints(c.node_parent), frame: ints(c.node_frame) },
    stacks: { node: stackNode, blame: stackBlame, owner: stackOwner, count: stackNode.length },
    phases: {
      count: c.phase_from.length, thread: c.phase_thread, from: c.phase_from, depth: ints(c.phase_depth),
      to: c.phase_length.map((length, index) => c.phase_from[index] + length),
      name: ints(c.phase_name), family: ints(c.phase_family),
    },
    notes: head.note_kind.map((kind, index) => ({
      kind, result: head.note_result[index], ns: c.note_ns[index], size: c.note_size[index],
      text: head.texts[c.note_text[index]], stack: c.note_stack[index], thread: c.note_thread[index],
      device: c.note_device[index], extra: [c.note_extra0[index], c.note_extra1[index]],
      pools: [c.note_allocated[index] - 1, c.note_reserved[index] - 1, c.note_largest[index] - 1],
    })),
    fact(key) { const found = head.report.facts.find(([name]) => name === key); return found ? found[1] : ""; },
  };
  recording.views = head.views.map((view, index) => viewOf(recording, c, view, index));
  // Tensors before the rest, the larger first: what is looked at first.
  const order = ["tensor", "device", "managed", "host"];
  recording.views.sort((a, b) => order.indexOf(a.layer) - order.indexOf(b.layer) || b.peak - a.peak);
  recording.iterations = iterationsOf(recording);
  return recording;
}

const LAYERS = { tensor: "Tensors", device: "Device memory", managed: "Managed memory", host: "Pinned host memory" };

function viewOf(recording, c, view, number) {
  const range = (column) => {
    let begin = column.indexOf(number), end = begin;
    if (begin < 0) return [0, 0];
    while (end < column.length && column[end] === number) end++;
    return [begin, end];
  };
  const [b0, b1] = range(c.block_view), [s0, s1] = range(c.sum_view);
  const from = c.block_from.slice(b0, b1), size = c.block_size.slice(b0, b1), to = c.block_life.slice(b0, b1);
  for (let index = 0; index < from.length; index++) {
    size[index] = c.sizes[size[index]];
    to[index] = to[index] ? from[index] + to[index] - 1 : Infinity;
  }
  const curves = view.curves.map(([name, at]) => {
    const min = c["curve" + at + "_min"];
    const max = c["curve" + at + "_more"].map((more, index) => min[index] + more);
    return { name, min, max };
  });
  const device = view.device === null ? "" : " · GPU " + view.device;
  return {
    recording, layer: view.layer, device: view.device, title: LAYERS[view.layer] + (view.layer === "host" ? "" : device),
    peak: view.peak, peakNs: view.peak_ns, endBytes: view.end,
    live: curves.find((curve) => curve.name === "live"), others: curves.filter((curve) => curve.name !== "live"),
    blocks: { count: from.length, from, to, size, address: c.block_address.slice(b0, b1), stack: Int32Array.from(c.block_stack.subarray(b0, b1)) },
    sums: {
      count: s1 - s0, width: recording.head.sum_ns, stack: Int32Array.from(c.sum_stack.subarray(s0, s1)),
      stretch: c.sum_stretch.slice(s0, s1), blocks: c.sum_count.slice(s0, s1), bytes: c.sum_bytes.slice(s0, s1),
      freedBlocks: c.sum_freed_count.slice(s0, s1), freedBytes: c.sum_freed_bytes.slice(s0, s1),
    },
  };
}

function iterationsOf(recording) {
  // Those that the user set, or else phases.
  const set = recording.head.iterations;
  if (set) return set.map(([from, to], index) => ({ name: "iteration " + index, from, to }));
  const key = recording.head.iteration, phases = recording.phases, found = [];
  if (!key) return found;
  for (let index = 0; index < phases.count; index++) {
    if (phases.thread[index] === key[0] && phases.depth[index] === key[1] && phases.family[index] === key[2]) {
      found.push({ name: recording.texts[phases.name[index]], from: phases.from[index], to: phases.to[index] });
    }
  }
  return found;
}
