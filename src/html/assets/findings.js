// What stands out, as the report on a terminal begins: at most three findings, then what the recording does not tell.
const FINDINGS = 3;

function drawFindings(report) {
  const { findings, untold, steady } = report, box = $("findings");
  const line = (label, text) => text ? [element("dt", {}, label), element("dd", {}, text)] : [];
  const shown = findings.slice(0, FINDINGS).map((one) => element("li", { class: one.kind, "data-kind": one.kind },
    element("p", {}, one.text),
    element("dl", {},
      ...line("where", one.site ? siteText(one.site) : ""),
      ...line("kept by", one.kept_by),
      ...line(one.sure ? "sure" : "likely", one.why),
      ...line("fix", one.fix),
      ...line("more", element("code", {}, one.next)))));
  if (findings.length > FINDINGS) {
    shown.push(element("li", { class: "rest" }, "and " + format.count(findings.length - FINDINGS) + " more: ",
      element("code", {}, findings.slice(FINDINGS).map((one) => one.next).join("; "))));
  }
  const isOneMoment = untold.some((one) => one.topic === "history");
  const overTime = isOneMoment ? "" : "out of memory, growth, leaks, lasting drops, ";
  const rest = report.is_damaged ? "No findings in the rest: a part of the recording cannot be read. " : "No findings. ";
  const none = rest + (steady ? steady + " " : "") +
    "Looked for: " + overTime + "fragmentation, memory that is reserved and unused.";
  box.replaceChildren(
    findings.length ? element("ol", {}, ...shown) : element("p", {}, none),
    ...untold.map((one) => element("p", { class: "untold" }, element("b", {}, "Not told by this recording: "), one.what + " Next time: " + one.record + ".")));
}

// A function with its place, and where it was called from: `copy net.py:12, called by forward net.py:31`.
function siteText(site) {
  const functions = [site.function, site.called_by].filter(Boolean);
  return functions.map(functionText).join(", called by ");
}

function functionText({ name, file, line, module }) {
  const place = (file || module || "").split(/[/\\]/).pop();
  return name + (place ? " " + place + (file && line ? ":" + line : "") : "");
}
