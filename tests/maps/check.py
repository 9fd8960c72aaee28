#!/usr/bin/env python3
"""Maps of folders: each folder of more than ten files has one, and it is true.

    tests/maps/check.py               exit code 1 and a line for each fault
    tests/maps/check.py --self-test   the rules, on made-up folders

A map is the folder's README.md (INDEX.md in tests/programs). The first column of its tables names the files and folders
beside it in backquotes, or patterns of them. Each file and folder has one row, and each row has a file.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A folder with more files than this needs a map.
MOST = 10
MAPS = ("README.md", "INDEX.md")
# Their files are read by number or name only.
LEFT_OUT = ("docs/", "fuzz/", "benches/")
ROW = re.compile(r"^\| *`([^`|]+)`(?:, `([^`|]+)`)* *\|")


def names(folder, tracked):
    """The files and folders in a folder; a folder ends with a slash."""
    depth = len(folder.parts)
    found = set()
    for path in tracked:
        if path.parts[:depth] == folder.parts and len(path.parts) > depth:
            here = path.parts[depth]
            found.add(here if len(path.parts) == depth + 1 else here + "/")
    return {name for name in found if name not in MAPS}


def rows(text):
    """The first column of each row: a list of names."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield re.findall(r"`([^`]+)`", line.split("|")[1])


def faults_of(folder, text, here):
    """Lines on the rows without a file, and on the files that have no row or several."""
    patterns = [name for row in rows(text) for name in row]
    for pattern in patterns:
        if not fnmatch.filter(here, pattern):
            yield f"{folder}: the map has `{pattern}`, which is not there"
    for name in sorted(here):
        count = sum(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        if count == 0:
            yield f"{folder}: the map has no row for `{name}`"
        elif count > 1:
            yield f"{folder}: the map has {count} rows for `{name}`"


def faults(root, tracked):
    folders = {path.parent for path in tracked}
    for folder in sorted(folders):
        if str(folder) == "." or str(folder).startswith(".") or f"{folder}/".startswith(LEFT_OUT):
            continue
        here = names(folder, tracked)
        files = [name for name in here if not name.endswith("/")]
        maps = [root / folder / name for name in MAPS if (root / folder / name).exists()]
        mapped = next((one for one in maps if any(rows(one.read_text()))), None)
        if mapped:
            yield from faults_of(folder, mapped.read_text(), here)
        elif len(files) > MOST:
            yield f"{folder}: {len(files)} files and no map (README.md)"


def self_test():
    head = "| File | Holds |\n|---|---|\n"
    cases = [
        ({"a.rs", "b.rs"}, "| `a.rs` | x |\n| `b.rs` | y |\n", 0),
        ({"a.rs", "b.rs"}, "| `a.rs`, `b.rs` | x |\n", 0),
        ({"a.rs", "b.rs", "sub/"}, "| `*.rs` | x |\n| `sub/` | y |\n", 0),
        ({"a.rs"}, "| `a.rs` | x |\n| `b.rs` | gone |\n", 1),
        ({"a.rs", "b.rs"}, "| `a.rs` | x |\n", 1),
        ({"a.rs"}, "| `a.rs` | x |\n| `a.*` | again |\n", 1),
    ]
    wrong = [case for case in cases if len(list(faults_of("f", head + case[1], case[0]))) != case[2]]
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "many").mkdir()
        tracked = [pathlib.Path(f"many/{n}.rs") for n in range(MOST + 1)]
        if len(list(faults(root, tracked))) != 1:
            wrong.append("a folder without a map")
        (root / "many/README.md").write_text(head + "| `*.rs` | x |\n")
        if list(faults(root, tracked)):
            wrong.append("a folder with a map")
    print(f"self-test: {len(cases) + 2 - len(wrong)} of {len(cases) + 2} as expected")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    tracked = [pathlib.Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    found = list(faults(ROOT, tracked))
    print("\n".join(found) or f"maps: all as the folders are")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
