"""The cell magic, in a real kernel."""

import json
import re

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = """
import json, sys
import nbclient, nbformat

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in json.loads(CELLS)])
nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", allow_errors=True).execute()
import driver
driver.tell([[dict(one) for one in cell.outputs] for cell in notebook.cells])
"""
CELLS = [
    "%load_ext gpushim\nimport driver\ndriver.start()",
    "def keep():\n    address = driver.ctypes.c_uint64()\n    driver.cuda.cuMemAlloc_v2(driver.ctypes.byref(address), driver.ctypes.c_size_t(5 << 20))",
    "%%gpushim\nkept = keep()\nscratch = driver.allocate(7 << 20)\ndriver.call('cuMemFree_v2', scratch)\n'value'",
    "%%gpushim evaluation\n1 / 0",
    "%%gpushim\nkept = 'nothing'",
    "%unload_ext gpushim",
    "1 / 0",
]


def shown(cell):
    """The texts that a cell displayed."""
    return [one["data"]["text/plain"] for one in cell if one["output_type"] in ("display_data", "execute_result")]


def error(cell):
    """The traceback that a cell displayed, without colours."""
    (found,) = [one for one in cell if one["output_type"] == "error"]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(found["traceback"]))


@pytest.fixture
def cells(program):
    def run(**options):
        return program(f"CELLS = {json.dumps(CELLS)!r}\n{NOTEBOOK}", **options)

    return run


def test_a_cell_shows_what_it_used_and_left(cells):
    done = cells()
    value, memory = shown(done.found[2])
    assert value == "'value'"
    assert [line.split() for line in memory.splitlines()] == [
        ["In", "[3]:", "GPU", "memory"],
        ["before", "after", "grew", "peak"],
        ["device", "0", "B", "5.0", "MiB", "+5.0", "MiB", "12.0", "MiB"],
        ["left", "by", "this", "cell"],
        ["left", "blocks", "function", "place"],
        ["5.0", "MiB", "1", "keep", "In", "[2]:3"],
    ]
    page = done.found[2][1]["data"]["text/html"]
    assert page.count("<table>") == 2 and "In [2]:3" in page
    assert done.names("range-push") == ["In [3]", "evaluation", "In [5]"] and done.count("range-pop") == 3
    # A cell that fails shows its memory, and its own lines, of which the magic's is the first.
    assert shown(done.found[3])[0].startswith("evaluation: GPU memory")
    said = error(done.found[3])
    assert "----> 2 1 / 0" in said and "integrations/jupyter.py" not in said
    # After %unload_ext all is as before.
    assert "----> 1 1 / 0" in error(done.found[6])


def test_without_gpushim_cells_run_and_it_is_said_once(cells):
    done = cells(preload=False)
    texts = [one.get("text", "") for cell in done.found for one in cell if one["output_type"] == "stream"]
    assert shown(done.found[2]) == ["'value'"]
    assert "".join(texts).count("gpushim is not preloaded") == 1
