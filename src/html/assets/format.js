// Numbers as people read them; the same words as the report's.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const format = {
  bytes(count) {
    let unit = 0, value = Math.abs(count);
    while (value >= (unit ? 1023.95 : 1024) && unit + 1 < UNITS.length) { value /= 1024; unit++; }
    return (count < 0 ? "−" : "") + (unit ? value.toFixed(1) : String(Math.round(value))) + " " + UNITS[unit];
  },
  change(count) { return (count > 0 ? "+" : "") + format.bytes(count); },
  count(number) { return Math.round(number).toLocaleString("en-US"); },
  events(number) { return format.count(number) + (number === 1 ? " event" : " events"); },
  span(ns) {
    if (ns < 1e3) return Math.round(ns) + " ns";
    if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
    if (ns < 1e9) return (ns / 1e6).toFixed(1) + " ms";
    if (ns < 6e10) return (ns / 1e9).toFixed(2) + " s";
    if (ns < 3.6e12) return Math.floor(ns / 6e10) + " min " + Math.floor(ns / 1e9 % 60) + " s";
    return Math.floor(ns / 3.6e12) + " h " + Math.floor(ns / 6e10 % 60) + " min";
  },
  // A moment, as exactly as a window of that length asks for.
  moment(ns, window) {
    const digits = Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(Math.max(window, 1) / 1e9))));
    return format.clock(ns, digits);
  },
  clock(ns, digits) {
    const total = ns / 1e9;
    if (total < 1 && digits >= 3) return (ns / 1e6).toFixed(digits - 3) + " ms";
    if (total < 600) return total.toFixed(digits) + " s";
    const hours = Math.floor(total / 3600), minutes = Math.floor(total / 60 % 60);
    const seconds = (total % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
    return hours ? hours + ":" + String(minutes).padStart(2, "0") + ":" + seconds : minutes + ":" + seconds;
  },
  percent(part, whole) {
    if (!(whole > 0)) return "–";
    const share = 100 * part / whole;
    return (share > 99.9 && share < 100 ? "> 99.9" : share.toFixed(1)) + " %";
  },
  address(number) { return "0x" + number.toString(16); },
  base(path) { return path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1); },
  date(ns) { return new Date(ns / 1e6).toISOString().slice(0, 19).replace("T", " ") + " UTC"; },
};
