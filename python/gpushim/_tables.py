"""Rows as tables of pandas or polars, as far as these are installed."""

import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Dict, Iterator, List, Optional

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


def of_rows(sort: str, rows: List[Dict[str, Any]]) -> Any:
    """A table of rows."""
    if sort == "pandas":
        return import_module("pandas").DataFrame(rows)
    if sort == "polars":
        # Columns may be empty for thousands of rows.
        return import_module("polars").DataFrame(rows, infer_schema_length=None)
    return rows


def rows_of_export(lines: bytes) -> List[Dict[str, Any]]:
    """The events of ``gpushim export --to json``, with their stacks as in Parquet: outermost first, joined by ``;``."""
    return list(_rows_of_export(lines))


def _rows_of_export(lines: bytes) -> Iterator[Dict[str, Any]]:
    stacks: Dict[Any, Dict[str, Any]] = {}
    for line in lines.splitlines():
        row = json.loads(line)
        if "stack" in row and "frames" in row:
            stacks[row["stack"]] = row
        elif "kind" in row:
            yield row
