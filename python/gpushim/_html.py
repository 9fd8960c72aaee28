"""Findings as small tables of a notebook. All of a recording's texts are escaped: they are the recorded program's."""

from html import escape
from typing import TYPE_CHECKING, Any, Dict, Iterable, List

if TYPE_CHECKING:
    from ._recording import Finding

_CELL = 'style="text-align:left;vertical-align:top;white-space:normal"'


def size(count: float) -> str:
    """Bytes in the largest binary unit in which they are at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes all")


def findings(all_of_them: "Iterable[Finding]") -> str:
    """A table of findings."""
    rows = [_row(one) for one in all_of_them]
    if not rows:
        return "<p>Nothing stands out.</p>"
    head = "".join(f"<th {_CELL}>{name}</th>" for name in ("finding", "where", "fix"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(one: "Finding") -> str:
    where: List[str] = []
    if one.site is not None and one.site.function is not None:
        function = one.site.function
        where.append(f"<code>{escape(function.name)}</code>")
        if function.file is not None:
            line = "" if function.line is None else f":{function.line}"
            where.append(escape(f"{function.file}{line}"))
    if one.kept_by:
        where.append(escape(f"kept by {one.kept_by}"))
    text = escape(one.text) if one.sure else f"{escape(one.text)} <i>(not certain)</i>"
    cells = (text, "<br>".join(where), escape(one.fix or ""))
    return "<tr>" + "".join(f"<td {_CELL}>{cell}</td>" for cell in cells) + "</tr>"


def recording(path: str, all_of_them: "Iterable[Finding]", report: Dict[str, Any]) -> str:
    """A recording: its path, what is damaged or missing in it, its findings."""
    problems = "".join(f"<li>{escape(str(one))}</li>" for one in report.get("problems", ()))
    problems = f"<ul>{problems}</ul>" if problems else ""
    return f"<div><p><b>gpushim</b> <code>{escape(path)}</code></p>{problems}{findings(all_of_them)}</div>"
