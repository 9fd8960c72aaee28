// The page of a job: what stands out, a map of all ranks over time, and the tables of the text.
const RULER = 20, TITLE = 18, COLUMNS = 240;

// From dark blue over green to yellow: lighter is more.
function shade(part) {
  const stops = [[38, 20, 78], [40, 90, 140], [40, 150, 120], [140, 200, 70], [250, 230, 60]];
  const at = Math.min(0.9999, Math.max(0, part)) * (stops.length - 1);
  const low = stops[Math.floor(at)], high = stops[Math.floor(at) + 1], between = at % 1;
  return low.map((value, index) => Math.round(value + (high[index] - value) * between));
}

// MiB live of a rank in each column; -1 before its start and after its end.
function columnsOf({ started_ns: started }, { column_ns: each, live_kib: live }, column) {
  return Array.from({ length: COLUMNS }, (_, at) => {
    const kib = each ? live[Math.floor((column * (at + 0.5) - started) / each)] : undefined;
    return kib === undefined ? -1 : kib / 1024;
  });
}

function mapOf(job) {
  const ends = job.ranks.map((rank, at) => rank.started_ns + job.over_time[at].column_ns * job.over_time[at].live_kib.length);
  const columns = COLUMNS, column = Math.max(1, ...ends) / columns;
  const rows = job.ranks.map((rank, at) => ({ name: rank.name, host: rank.host, outlier: rank.outlier, live: columnsOf(rank, job.over_time[at], column) }));
  // A browser draws no canvas of any height: then several ranks share a line, and the most of them is shown.
  const share = Math.ceil(rows.length / 4096), lines = Math.ceil(rows.length / share);
  const most = Math.max(1, ...rows.map((row) => Math.max(...row.live)));
  const canvas = element("canvas", { role: "img", class: "ranks-map", "aria-label": "Live memory of each rank over time; the list above names the ranks that stand out" });
  const high = Math.min(900, Math.max(120, lines * 4));
  canvas.style.height = high + RULER + TITLE + "px";
  const picture = document.createElement("canvas");
  Object.assign(picture, { width: columns, height: lines });
  const paint = () => {
    const context = picture.getContext("2d"), image = context.createImageData(columns, lines);
    for (let line = 0; line < lines; line++) {
      const together = rows.slice(line * share, (line + 1) * share);
      for (let x = 0; x < columns; x++) {
        const live = Math.max(...together.map((row) => row.live[x]));
        image.data.set(live < 0 ? [128, 128, 128, 40] : [...shade(live / most), 255], (line * columns + x) * 4);
      }
    }
    context.putImageData(image, 0, 0);
  };
  const draw = (marked) => {
    const { context, width } = begin(canvas), wide = width - LEFT - RIGHT, end = column * columns;
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, LEFT, 0, wide, high);
    const every = high / rows.length;
    context.textAlign = "right";
    let free = 0;
    rows.forEach((row, index) => {
      const top = index * every;
      if (marked ? marked.has(row.name) : row.outlier.length) {
        context.fillStyle = colours.warn;
        context.fillRect(LEFT - 6, top, 5, Math.max(1, every));
      }
      if (top + every / 2 < free || top + every / 2 > high - 6) return;
      context.fillStyle = colours.soft;
      context.fillText(fitted(context, row.name, LEFT - 26), LEFT - 10, Math.max(6, top + every / 2));
      free = top + every / 2 + 14;
    });
    context.textAlign = "center";
    context.fillStyle = colours.soft;
    for (const [ns, label] of timeTicks(0, end, wide / 110)) {
      const x = LEFT + ns / end * wide;
      if (x + context.measureText(label).width / 2 < width) context.fillText(label, x, high + 11);
    }
    context.fillText("time since the first rank started", LEFT + wide / 2, high + RULER + 8);
    context.save();
    context.translate(7, high / 2);
    context.rotate(-Math.PI / 2);
    context.fillText("rank", 0, 0);
    context.restore();
  };
  canvas.addEventListener("pointerleave", (event) => tip(event, []));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(), wide = box.width - LEFT - RIGHT;
    const column = Math.floor((event.clientX - box.left - LEFT) / wide * columns);
    const row = rows[Math.floor((event.clientY - box.top) / high * rows.length)];
    if (!row || column < 0 || column >= columns) return tip(event, []);
    const live = row.live[column];
    tip(event, ["rank " + row.name + (row.host ? " on " + row.host : ""),
      format.span(column * column) + ": " + (live < 0 ? "did not run" : format.bytes(live * 1048576)), ...row.outlier]);
  });
  const legend = element("canvas", { class: "scale", "aria-hidden": "true" });
  Object.assign(legend, { width: 128, height: 1 });
  const line = legend.getContext("2d"), image = line.createImageData(128, 1);
  for (let x = 0; x < 128; x++) image.data.set([...shade(x / 127), 255], x * 4);
  line.putImageData(image, 0, 0);
  const said = share > 1 ? "; " + share + " ranks share a line, and the most of them is shown" : "";
  const box = element("section", { class: "charts" },
    element("div", { class: "bar" }, element("span", { class: "scale-box" }, "live memory 0", legend, format.bytes(most * 1048576)),
      element("span", { class: "status" }, "marks at the left stand out" + said)), canvas);
  return { box, draw, paint };
}

// `rank 3` or `ranks 3, 7-9`.
function ranksText(names) {
  const parts = [];
  for (const name of names) {
    const last = parts[parts.length - 1];
    if (last && Number(name) === last[1] + 1) last[1] = Number(name);
    else parts.push([name, Number(name)]);
  }
  return (names.length === 1 ? "rank " : "ranks ") + parts.map(([from, to]) => Number(from) < to ? from + "-" + to : from).join(", ");
}

function outlierOf(one, light) {
  const line = (label, text) => text ? [element("dt", {}, label), element("dd", {}, text)] : [];
  return element("li", { "data-kind": one.kind },
    element("p", {}, element("button", { type: "button", title: "Mark in the map", onclick: light }, one.kind + ": " + ranksText(one.ranks)), " " + one.text),
    element("dl", {}, ...line("where", one.site && one.site.short), ...line(one.sure ? "sure" : "likely", one.why), ...line("more", one.next && element("code", {}, one.next))));
}

// `pages` has the page of each row, where there is one.
function tableOf({ aligns, lines }, pages) {
  const [head, ...rows] = lines, kind = (at) => aligns[at] === "right" ? "n" : null;
  const cell = (tag, text, at, page) => element(tag, { class: kind(at) }, page && !at ? element("a", { href: "./" + encodeURIComponent(page) }, text) : text);
  return element("div", { class: "table" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text, at) => cell("th", text, at)))),
    element("tbody", {}, ...rows.map((row, index) => element("tr", {}, ...row.map((text, at) => cell("td", text, at, pages && pages[index])))))));
}

function start() {
  const text = new TextDecoder().decode(Uint8Array.from(atob($("data").textContent), (letter) => letter.charCodeAt(0)));
  const drawings = [];
  for (const job of JSON.parse(text)) {
    const map = job.ranks.length ? mapOf(job) : null;
    const outliers = job.outliers.map((one) => outlierOf(one, () => map && map.draw(new Set(one.ranks))));
    const unread = job.unreadable.map(({ file, why }) => element("li", {}, file + ": " + why));
    const tables = job.tables.filter(({ lines }) => lines.length > 1);
    $("jobs").append(element("h2", {}, job.verdict));
    if (unread.length) $("jobs").append(element("ul", { class: "problems" }, ...unread));
    if (outliers.length) $("jobs").append(element("section", { class: "findings", "aria-label": "Ranks that stand out" }, element("ol", {}, ...outliers)));
    if (map) {
      $("jobs").append(map.box);
      map.paint();
      drawings.push(map.draw);
    }
    for (const one of tables) {
      $("jobs").append(element("section", { class: "table-box" }, tableOf(one, one === job.tables[0] ? job.pages : null)));
    }
    if (map) $("jobs").append(element("p", { class: "note" }, "A rank's own page is linked if `gpushim html` wrote it beside this one: ", element("code", {}, "gpushim html TRACE")));
    $("program").textContent ||= job.job ? "job " + job.job : job.ranks.length + " ranks";
  }
  document.title = $("program").textContent + " · gpushim";
  const drawAll = () => drawings.forEach((draw) => draw());
  startTheme(drawAll);
  addEventListener("resize", drawAll);
  document.documentElement.dataset.ready = "yes";
}

start();
