#!/usr/bin/env python3
"""Checks which file imports which, in the crates of this repository.

A source root may have floors: folders in an order, of which a lower one must not import a higher one. Files must
not import each other in a circle. A module and those that it declares are one thing here: what they import of each
other is no part of a circle. Modules of tests may import everything.

  check.py              checks every root of ROOTS; one line for each finding; exit code 1 if there is one
  check.py --list       prints every import as well, for work on the floors
  check.py --self-test  plants an import upwards and a circle, and sees that both are found
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]

# The source roots, each with its floors from the lowest to the highest. Files of a floor are those in the folder of
# this name and the file NAME.rs beside it. A root without floors is checked for circles only. Files at the root
# that are on no floor (`lib.rs`) may import everything, and nothing may import them.
ROOTS = {
    "shim/src": ["base", "cuda", "record", "memory", "process", "hooks"],
    "crates/trace/src": [],
    "crates/python/src": [],
    "crates/recording/src": [],
    "crates/simulate/src": [],
    "crates/unwind/src": [],
    "crates/alloc/src": [],
    "crates/analysis/src": [],
    "crates/config/src": [],
    "crates/descriptors/src": [],
    "crates/ipc/src": [],
    "crates/torch/src": [],
    "crates/version/src": [],
    "src": [],
}

# Circles that are known and stay for now: for each root the files of each, by their path below it, and why.
KNOWN_CIRCLES = {}


class Source:
    """The modules of one crate and what each imports."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        for path in sorted(root.rglob("*.rs")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[-1] in ("mod", "lib", "main"):
                parts.pop()
            if "tests" not in parts:
                self.files[tuple(parts)] = path
        # From file to file, with the items that are imported.
        self.imports = {}
        for module, path in self.files.items():
            for target, item in imported(path.read_text(), module):
                found = self.file_of(target)
                if found is not None and found != module and found != ():
                    self.imports.setdefault((module, found), set()).add(item)

    def file_of(self, path):
        """The file that the longest part of a path names; None for a path out of the crate."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.files:
                return path[:length]
        return None

    def name(self, module):
        return str(self.files[module].relative_to(self.root))


def is_family(a, b):
    """Whether one of two modules is declared in the other or in a module of it."""
    return a[: len(b)] == b or b[: len(a)] == a


def code_of(text):
    """The text without comments, strings and character literals."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?c?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\\\'])\'', re.DOTALL
    )
    return pattern.sub(" ", text)


WORD = r"[A-Za-z_][A-Za-z0-9_]*"
TOKEN = re.compile(
    rf"(?P<module>\bmod\s+(?P<name>{WORD})\s*\{{)|(?P<use>\buse\s+(?P<tree>[^;]*);)"
    rf"|(?P<path>(?:\$crate|\bcrate|\bsuper|\bself)(?:\s*::\s*{WORD})+)|(?P<open>\{{)|(?P<close>\}})"
)


def imported(text, module):
    """The paths in the crate that a file's code names, each as the module's path and as it is written."""
    depth, inside = 0, []
    for token in TOKEN.finditer(code_of(text)):
        if token["module"]:
            inside.append((token["name"], depth))
            depth += 1
        elif token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if inside and inside[-1][1] == depth:
                inside.pop()
        elif any(name == "tests" for name, _ in inside):
            continue
        else:
            here = module + tuple(name for name, _ in inside)
            paths = expand(token["tree"]) if token["use"] else [re.sub(r"\s", "", token["path"])]
            for path in paths:
                target = resolve(path.split("::"), here)
                if target is not None:
                    yield target, path.split("::")[-1] if path.endswith("self") else path


def expand(tree):
    """The paths of a `use` tree."""
    tree = re.sub(rf"\s+as\s+{WORD}", "", tree)
    tree = re.sub(r"\s", "", tree)
    brace = tree.find("{")
    if brace < 0:
        return [tree]
    head, rest, depth, part, paths = tree[:brace], tree[brace + 1 :], 0, "", []
    for letter in rest:
        if letter == "," and depth == 0 or letter == "}" and depth == 0:
            paths += [head + path for path in expand(part)] if part else []
            part = ""
            if letter == "}":
                break
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        part += letter
    return paths


def resolve(parts, here):
    """The absolute path of a path that is written in the module `here`; None if it is of another crate."""
    if parts[0] in ("crate", "$crate"):
        return tuple(parts[1:])
    if parts[0] not in ("super", "self"):
        return None
    while parts and parts[0] in ("super", "self"):
        if parts[0] == "super":
            here = here[:-1]
        parts = parts[1:]
    return here + tuple(parts)


def circles(source):
    """The sets of files that import each other, the largest first; families do not count."""
    graph = {module: set() for module in source.files}
    for importer, target in source.imports:
        if not is_family(importer, target):
            graph[importer].add(target)
    # Tarjan's algorithm.
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            place = stack.index(node)
            members = stack[place:]
            del stack[place:]
            if len(members) > 1:
                found.append(sorted(members))

    sys.setrecursionlimit(10000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def check(root, floors, known=()):
    """What is wrong in one root, one line each."""
    source = Source(root)
    order = {name: height for height, name in enumerate(floors)}
    findings = []
    for (importer, target), items in sorted(source.imports.items()):
        low, high = order.get(importer[0] if importer else None), order.get(target[0])
        if importer and floors and low is None:
            low = -1
        if low is not None and high is not None and low < high:
            what = ", ".join(sorted(items))
            findings.append(f"{source.name(importer)} imports {source.name(target)}, which is higher: {what}")
    for module in source.files:
        if floors and module and module[0] not in order:
            findings.append(f"{source.name(module)} is on no floor")
    for members in circles(source):
        names = [source.name(module) for module in members]
        if sorted(names) not in [sorted(files) for files, _ in known]:
            findings.append(f"a circle of {len(names)} files: {' '.join(names)}")
    return source, findings


def self_test():
    """Plants one mistake of each kind among files that are as they should be."""
    good = {
        "lib.rs": "mod low; mod high;",
        "low/mod.rs": "pub mod a; pub mod b; use self::a::X;",
        "low/a.rs": "use super::Y; // use crate::high::c;\nconst S: &str = \"crate::high::c\";",
        "low/b.rs": "use crate::{low::a, low::a::{self as other, X}};\nmod tests { use crate::high::c; }",
        "high/mod.rs": "pub mod c;",
        "high/c.rs": "use crate::low::{a, b};",
    }
    planted = {
        "nothing": ({}, []),
        "an import upwards": ({"low/a.rs": "fn f() { crate::high::c::g() }"}, ["low/a.rs imports high/c.rs"]),
        "an import upwards in a tree": (
            {"low/b.rs": "use crate::{low::a::X, high::{c::{self, Z}}};"},
            ["low/b.rs imports high/c.rs"],
        ),
        "an import upwards by super": ({"low/a.rs": "use super::super::high::c;"}, ["low/a.rs imports high/c.rs"]),
        "an import upwards in a macro": ({"low/a.rs": "$crate::high::c::g()"}, ["low/a.rs imports high/c.rs"]),
        "a circle": ({"low/a.rs": "use super::b::Z;"}, ["a circle of 2 files: low/a.rs low/b.rs"]),
        "a file on no floor": ({"stray.rs": ""}, ["stray.rs is on no floor"]),
        "a circle by way of a third": (
            {"low/a.rs": "use super::b::Z;", "low/b.rs": "use crate::low::d;", "low/d.rs": "use crate::low::a;"},
            ["a circle of 3 files: low/a.rs low/b.rs low/d.rs"],
        ),
    }
    cases = [(what, changed, expected, ["low", "high"]) for what, (changed, expected) in planted.items()]
    # Without floors every order is right, and a circle is not.
    cases.append(("an import in a root without floors", {"low/a.rs": "use crate::high::d;", "high/d.rs": ""}, [], []))
    cases.append(("a circle in a root without floors", planted["a circle"][0], planted["a circle"][1], []))
    wrong = []
    for what, changed, expected, floors in cases:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**good, **changed}.items():
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            found = check(Path(folder), floors)[1]
        # An import upwards may close a circle as well.
        seen = all(any(line.startswith(start) for line in found) for start in expected)
        if not seen or not expected and found:
            wrong.append(f"planted {what}, found {found or 'nothing'}")
    for line in wrong:
        print(line)
    print(f"self-test: {len(cases) - len(wrong)} of {len(cases)} as expected")
    return bool(wrong)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--list", action="store_true", help="prints every import")
    options.add_argument("--self-test", action="store_true", help="plants mistakes and sees them found")
    options = options.parse_args()
    if options.self_test:
        return self_test()
    is_wrong = False
    for name, floors in ROOTS.items():
        source, findings = check(HERE / name, floors, KNOWN_CIRCLES.get(name, []))
        if options.list:
            for (importer, target), items in sorted(source.imports.items()):
                print(f"{source.name(importer)} -> {source.name(target)}: {', '.join(sorted(items))}")
        for finding in findings:
            print(f"{name}/{finding}")
        largest = max(map(len, circles(source)), default=0)
        print(f"{name}: {len(source.files)} files, {len(source.imports)} imports, largest circle {largest} files")
        is_wrong |= bool(findings)
    return is_wrong


if __name__ == "__main__":
    sys.exit(main())
