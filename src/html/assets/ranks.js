// Ranks side by side: peak and curve of each; a press looks at it.
function drawRanks(entries, chosen, choose) {
  const box = $("ranks");
  box.hidden = entries.length < 2;
  if (entries.length < 2) return;
  const most = Math.max(1, ...entries.map((entry) => entry.overview.peak));
  const longest = Math.max(1, ...entries.map((entry) => entry.overview.end_ns));
  const buttons = entries.map((entry, index) => {
    const { overview } = entry, canvas = element("canvas", { "aria-hidden": "true" });
    return element("button", {
      type: "button", class: "rank", "aria-pressed": String(index === chosen), onclick: () => choose(index),
      "aria-label": entryName(entry) + ", peak " + format.bytes(overview.peak) + " after " + format.span(overview.peak_ns),
      title: entry.trace,
    }, element("span", {}, entryName(entry)), canvas, element("span", {}, format.bytes(overview.peak), element("small", {}, " at " + format.span(overview.peak_ns))));
  });
  box.replaceChildren(...buttons);
  entries.forEach(({ overview }, index) => {
    const { context, width, height } = begin(buttons[index].querySelector("canvas"));
    context.fillStyle = colours.region;
    context.fillRect(0, 0, width, height);
    // The same scales for all, so that they can be compared.
    const end = width * overview.end_ns / longest;
    context.fillStyle = overview.peak === most ? colours.accent : colours.faint;
    overview.spark.forEach((bytes, at) => {
      const high = bytes / most * (height - 2), each = end / overview.spark.length;
      context.fillRect(at * each, height - high, Math.max(each, 0.6), high);
    });
  });
}

function entryName(entry) {
  if (entry.rank !== null) return "rank " + entry.rank;
  return entry.pid !== null ? "process " + entry.pid : format.base(entry.trace);
}
