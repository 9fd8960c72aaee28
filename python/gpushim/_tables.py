"""Rows as tables of pandas or polars, as far as these are installed."""

import json
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Dict, List, Optional, Sequence

KINDS = ("pandas", "polars", "list")

INSTALL = (
    'no library for tables is installed: install one (pip install "gpushim[pandas]", or "gpushim[polars]"), or ask for '
    'plain lists of dicts with to="list"'
)


def kind(wanted: Optional[str]) -> str:
    """Which sort of table: what is asked for, or else the first of pandas and polars that is installed.

    Raises ValueError for a sort that there is not, ImportError, with what to install, for one that is not installed.
    """
    if wanted is None:
        for name in ("pandas", "polars"):
            if find_spec(name) is not None:
                return name
        raise ImportError(INSTALL)
    if wanted not in KINDS:
        raise ValueError(f'to={wanted!r} is no sort of table: it is "pandas", "polars" or "list"')
    if wanted != "list" and find_spec(wanted) is None:
        raise ImportError(f'{wanted} is not installed: pip install "gpushim[{wanted}]", or ask with to="list"')
    return wanted


def reads_parquet(sort: str) -> bool:
    """Whether this sort of table can be read from Parquet: pandas needs a reader for that."""
    return sort == "polars" or any(find_spec(name) is not None for name in ("pyarrow", "fastparquet"))


def of_parquet(sort: str, path: str) -> Any:
    """A table, read as a whole: the file may go."""
    if sort == "polars":
        with open(path, "rb") as file:
            return import_module("polars").read_parquet(file)
    return import_module("pandas").read_parquet(path)


def of_rows(sort: str, rows: List[Dict[str, Any]], columns: Sequence[str] = ()) -> Any:
    """A table of rows; with these columns if there are none."""
    if sort == "pandas":
        return import_module("pandas").DataFrame(rows, columns=None if rows else list(columns))
    if sort == "polars":
        # Columns may be empty for thousands of rows.
        return import_module("polars").DataFrame(rows or {name: [] for name in columns}, infer_schema_length=None)
    return rows


def rows_of_export(lines: bytes) -> List[Dict[str, Any]]:
    """The events of ``gpushim export --to json``, with their stacks as in Parquet: outermost first, joined by ``;``."""
    rows = []
    stacks: Dict[Any, str] = {}
    for line in lines.splitlines():
        row = json.loads(line)
        if "frames" in row:
            stacks[row["stack"]] = ";".join(_frame(frame) for frame in reversed(row["frames"]))
        elif "kind" in row:
            if "stack" in row:
                row["stack"] = stacks.get(row["stack"])
            rows.append(row)
    return rows


def _frame(frame: Dict[str, Any]) -> str:
    """A function as Parquet names it: with its file and line, or else with its module."""
    name, line = frame.get("function") or "?", frame.get("line")
    where = os.path.basename(frame.get("file") or frame.get("module") or "")
    if not where:
        return str(name)
    return f"{name} ({where})" if line is None else f"{name} ({where}:{line})"


HOLDER = ("bytes", "blocks", "share", "function", "file", "line", "operator", "ranges", "stack", "oldest_ns")
"""The columns of what held memory."""


def holder(one: Dict[str, Any]) -> Dict[str, Any]:
    """A row of what held memory: its call site in columns, the whole stack as a text, outermost first."""
    function = one.get("function") or {}
    return {
        "bytes": one["bytes"],
        "blocks": one["blocks"],
        "share": one["share"],
        "function": function.get("name"),
        "file": function.get("file"),
        "line": function.get("line"),
        "operator": one.get("operator"),
        "ranges": ";".join(reversed(one.get("ranges", ()))),
        "stack": ";".join(frame["name"] for frame in reversed(one.get("frames", ()))),
        "oldest_ns": one.get("oldest_ns"),
    }


def points(found: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Rows of a timeline: for each device and step of time, when the step ends, and the most bytes of each series in it;
    the least as ``…_least``. Steps of which nothing is known are left out."""
    rows = []
    for one in found["devices"]:
        curves = one["curves"]
        steps = max((len(curve["columns"]) for curve in curves), default=0)
        for step in range(steps):
            row: Dict[str, Any] = {"ns": found["end_ns"] * (step + 1) // steps, "device": one["device"]}
            for curve in curves:
                column = curve["columns"][step]
                least, most = (None, None) if column is None else column
                name = curve["name"].replace(" ", "_")
                row[name], row[f"{name}_least"] = most, least
            if any(value is not None for name, value in row.items() if name not in ("ns", "device")):
                rows.append(row)
    return rows
