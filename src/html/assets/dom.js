// Elements, colours, canvases. Text from a trace only ever becomes text.
const $ = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function swatch(group) {
  const made = element("i", { class: "swatch" });
  made.style.background = "var(--g" + group + ")";
  return made;
}

// The colours of the theme in force, for canvases.
const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "panel", "line", "grid", "text", "soft", "faint", "accent", "accent-soft", "warn", "region"]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
  colours.groups = Array.from({ length: 9 }, (_, group) => style.getPropertyValue("--g" + group).trim());
}

// As the number of a pixel; `share` of the way to another colour.
function pixel(hex, share = 0, other = hex) {
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(part(hex, at) * (1 - share) + part(other, at) * share));
  return (255 << 24 | mixed[2] << 16 | mixed[1] << 8 | mixed[0]) >>> 0;
}

// A canvas made ready: its context in CSS pixels, and its size.
function begin(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const wide = Math.max(1, Math.round(width * ratio)), high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';
  context.textBaseline = "middle";
  return { context, width, height, ratio };
}

function tip(event, lines) {
  const box = $("tip");
  if (!lines || !lines.length) { box.hidden = true; return; }
  box.replaceChildren(...lines.map((line) => element("div", {}, line)));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = event.clientX + 14 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 14;
  const top = event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16;
  box.style.left = Math.max(4, left) + "px";
  box.style.top = Math.max(4, top) + "px";
}

// As much of a text as fits.
function fitted(context, text, width) {
  if (width < 14) return "";
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle; else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}

// Parts of the page that only one of a row of buttons is chosen of.
function choice(box, role, options, chosen, choose) {
  const mark = role === "radio" ? "aria-checked" : "aria-selected";
  box.replaceChildren(...options.map(([value, label, title]) => element("button", {
    type: "button", role, [mark]: value === chosen, tabindex: value === chosen ? 0 : -1, "data-value": value, title,
    onclick: () => choose(value),
  }, label)));
  box.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = options.findIndex(([value]) => value === chosen);
    const next = options[(at + step + options.length) % options.length][0];
    choose(next);
    requestAnimationFrame(() => requestAnimationFrame(() => box.querySelector('[data-value="' + next + '"]')?.focus()));
  };
}
