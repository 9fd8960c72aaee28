"use strict";
// One section for each job: its outliers, and a map with a row for each rank and time from left to right.

const bytes = (mib) => (mib >= 1024 ? (mib / 1024).toFixed(1) + " GiB" : mib + " MiB");
const time = (ns) => (ns >= 60e9 ? (ns / 60e9).toFixed(1) + " min" : ns >= 1e9 ? (ns / 1e9).toFixed(1) + " s" : (ns / 1e6).toFixed(1) + " ms");

function add(parent, name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  parent.append(element);
  return element;
}

// From dark blue over green to yellow: lighter is more.
function colour(part) {
  const stops = [[38, 20, 78], [40, 90, 140], [40, 150, 120], [140, 200, 70], [250, 230, 60]];
  const at = Math.min(0.9999, Math.max(0, part)) * (stops.length - 1);
  const low = stops[Math.floor(at)], high = stops[Math.floor(at) + 1], between = at % 1;
  return low.map((value, index) => Math.round(value + (high[index] - value) * between));
}

function map(section, job) {
  const columns = job.rows.length ? job.rows[0].live.length : 0;
  if (!columns) return () => {};
  // A browser draws no canvas of any height: then several ranks share a line, and the most of them is shown.
  const share = Math.ceil(job.rows.length / 4096);
  const lines = Math.ceil(job.rows.length / share);
  const most = Math.max(1, ...job.rows.map((row) => Math.max(...row.live)));
  const canvas = add(section, "canvas");
  canvas.width = columns + 4;
  canvas.height = lines;
  canvas.style.height = Math.min(900, Math.max(120, lines * 4)) + "px";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Memory of each rank over time; the list above names the ranks that stand out");
  const axis = add(section, "div", undefined, "axis");
  add(axis, "span", "0");
  add(axis, "span", "a row is a rank, from the first on top; lighter is more, up to " + bytes(most) + "; red marks at the left stand out");
  add(axis, "span", time(job.column_ns * columns));
  const status = add(section, "p", "", "status");
  const draw = (marked) => {
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    for (let line = 0; line < lines; line++) {
      const rows = job.rows.slice(line * share, (line + 1) * share);
      const isMarked = rows.some((row, index) => (marked ? marked.has(line * share + index) : row.outlier.length));
      for (let x = 0; x < canvas.width; x++) {
        const live = x < 4 ? -1 : Math.max(...rows.map((row) => row.live[x - 4]));
        const [red, green, blue] = x < 3 && isMarked ? [220, 40, 40] : live < 0 ? [128, 128, 128] : colour(live / most);
        image.data.set([red, green, blue, x >= 4 && live < 0 ? 40 : x < 4 && !isMarked ? 0 : 255], (line * canvas.width + x) * 4);
      }
    }
    context.putImageData(image, 0, 0);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * canvas.width) - 4;
    const index = Math.floor(((event.clientY - box.top) / box.height) * lines) * share;
    const row = job.rows[Math.min(job.rows.length - 1, Math.max(0, index))];
    const live = row.live[Math.min(columns - 1, Math.max(0, column))];
    status.textContent = `rank ${row.name} on ${row.host}, ${time(job.column_ns * Math.max(0, column))}: ` +
      `${live < 0 ? "did not run" : bytes(live)}; peak ${bytes(Math.round(row.peak / 1048576))}` +
      (row.outlier.length ? "; " + row.outlier.join(", ") : "");
  });
  draw();
  return draw;
}

const text = new TextDecoder().decode(Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0)));
for (const job of JSON.parse(text)) {
  const section = add(document.getElementById("jobs"), "section");
  add(section, "h2", job.verdict);
  const list = add(section, "div");
  const draw = map(section, job);
  for (const one of job.outliers) {
    const box = add(list, "div", undefined, "outlier" + (one.sure ? " sure" : ""));
    const title = add(box, "p");
    const button = add(title, "button", `${one.kind}: ${one.ranks}`);
    button.addEventListener("click", () => draw(new Set(one.members)));
    add(box, "p", one.text);
    if (one.place) add(add(box, "p", "at "), "code", one.place);
    add(box, "p", (one.sure ? "sure: " : "likely: ") + one.why);
    if (one.next) add(add(box, "p"), "code", one.next);
  }
}
