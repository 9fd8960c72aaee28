"""What a cell of a notebook used and left, as tables."""

import os
import warnings
from html import escape
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import gpushim
from gpushim._html import size

_MOST = 10
"""Rows of what a cell left."""


class Memory(NamedTuple):
    """Memory before and after a cell, by kind and device, and the blocks that it left."""

    name: str
    before: Dict[Tuple[str, int], gpushim.Usage]
    after: Dict[Tuple[str, int], gpushim.Usage]
    left: List[Dict[str, Any]]

    def rows(self) -> List[Tuple[str, ...]]:
        """Memory, before, after, grew, peak."""
        devices = {device for _, device in self.after}
        found: List[Tuple[str, ...]] = []
        for (kind, device), now in self.after.items():
            was = self.before[kind, device].in_use if (kind, device) in self.before else 0
            grew = now.in_use - was
            sign = "+" if grew > 0 else ""
            what = kind if len(devices) == 1 else f"{kind}, device {device}"
            found.append((what, size(was), size(now.in_use), f"{sign}{size(grew)}", size(now.peak)))
        return found

    def places(self) -> List[Tuple[str, ...]]:
        """Bytes, blocks, function and place of what the cell left, the most bytes first."""
        found: List[Tuple[str, ...]] = []
        for one in self.left[:_MOST]:
            place = f"{one['file']}:{one['line']}" if one["file"] and one["line"] is not None else one["file"] or ""
            found.append((size(one["bytes"]), str(one["blocks"]), one["function"] or "", place))
        return found

    def __repr__(self) -> str:
        lines = [f"{self.name}: GPU memory", *_text(_HEAD, self.rows())] if self.after else [f"{self.name}: no GPU memory"]
        places = self.places()
        return "\n".join([*lines, "left by this cell", *_text(_PLACES, places)] if places else lines)

    def _repr_html_(self) -> str:
        if not self.after:
            return f"<p>{escape(self.name)}: no GPU memory</p>"
        page = f"<p>{escape(self.name)}: GPU memory</p>{_table(_HEAD, self.rows())}"
        places = self.places()
        return f"{page}<p>left by this cell</p>{_table(_PLACES, places)}" if places else page


_HEAD = ("", "before", "after", "grew", "peak")
_PLACES = ("left", "blocks", "function", "place")


def _text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    return ["  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in (head, *rows)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{tag} style="text-align:left">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"

    return f"<table><thead>{line('th', head)}</thead><tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"


def left(name: str) -> List[Dict[str, Any]]:
    """Live blocks that were made in a range of this process, by call site; empty if its trace cannot be read."""
    path = own_trace()
    if path is None:
        return []
    try:
        live = gpushim.load(path).live("list")
    except (gpushim.GpushimError, OSError) as error:
        warnings.warn(f"failed to read this process's trace: {error}", RuntimeWarning, stacklevel=2)
        return []
    return [one for one in live if name in one["ranges"].split(";")]


def own_trace() -> Optional[str]:
    """The path of the trace that this process writes, or None."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        fields = [line.rstrip("\n").split(None, 5) for line in maps]
    shared = {one[5] for one in fields if len(one) == 6 and one[1] == "rw-s" and one[5].startswith("/")}
    return next(filter(_is_trace, sorted(shared)), None)


def _is_trace(path: str) -> bool:
    # Devices and files that are deleted are mapped, too.
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(8) == b"gpushim\0"
    except OSError:
        return False
