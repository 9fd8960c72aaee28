"""The cell magic of notebooks.

    %load_ext gpushim

    %%gpushim
    loss = model(batch).sum()

shows what the cell used and left. In the trace the cell is a range, `In [2]`, and so are the places in all cells from
then on: `In [2]:4` is the fourth line of the second cell.
"""

import ast
import importlib
from typing import Any, Dict, List

import gpushim

from . import _cell
from ._loop import is_watched


def load(shell: Any) -> None:
    """Registers the magic, and names the code of cells by their numbers."""

    numbers = [0]
    before = shell.compile.get_code_name

    def code_name(raw: str, transformed: str, number: int) -> str:
        # IPython counts on before a cell runs, or after it, by its version.
        numbers[:] = [number]
        # The code below a cell's magic has the name, and the call of the magic has not: a file has one source.
        return str(before(raw, transformed, number)) if raw.lstrip().startswith("%%") else f"In [{number}]"

    def magic(line: str, cell: str) -> None:
        __tracebackhide__ = True
        run(shell, cell, numbers[0], line.strip())

    shell.register_magic_function(magic, "cell", "gpushim")
    shell.compile.get_code_name = code_name


def unload(shell: Any) -> None:
    """Undoes `load`."""
    shell.magics_manager.magics["cell"].pop("gpushim", None)
    # The method of the class shows again.
    vars(shell.compile).pop("get_code_name", None)


def run(shell: Any, cell: str, number: int, name: str = "") -> None:
    """Runs a cell within a range of its number or of the name given, and shows its memory, also if it fails."""
    __tracebackhide__ = True
    name = name or f"In [{number}]"
    if not is_watched():
        _execute(shell, cell, number)
        return
    gpushim.reset_peak()
    before = _usage()
    try:
        with gpushim.range(name):
            _execute(shell, cell, number)
    finally:
        importlib.import_module("IPython.display").display(_cell.Memory(name, before, _usage(), _cell.left(name)))


def _execute(shell: Any, cell: str, number: int) -> None:
    """Runs code in the user's namespace; the value of a last expression is displayed."""
    __tracebackhide__ = True
    # The line of the magic is the cell's first one.
    source = "\n" + shell.transform_cell(cell)
    file = shell.compile.cache(source, number, raw_code=cell)
    module = shell.transform_ast(shell.compile.ast_parse(source, file))
    last: List[ast.stmt] = [module.body.pop()] if module.body and isinstance(module.body[-1], ast.Expr) else []
    for tree, mode in ((module, "exec"), (ast.Interactive(last), "single")):
        if tree.body:
            exec(shell.compile(tree, file, mode), shell.user_ns)


def _usage() -> Dict[Any, gpushim.Usage]:
    stats = gpushim.stats()
    return {} if stats is None else {(one.kind, one.device): one for one in stats.usage}
