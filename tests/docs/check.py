#!/usr/bin/env python3
"""Checks README.md and docs/: links, the book's table of contents, code blocks, paths of sources (in comments of sources,
too), and every gpushim command in them.

    tests/docs/check.py --target DIR --standin DIR    DIR/debug has the command and the library
    tests/docs/check.py --self-test …                 plants a mistake of each kind; each must be found
Exit code: 0 all well, 1 something is wrong, 3 YAML cannot be parsed here.

Each command of a block (sh, console, or indented) or of a line of text is run in a folder of its own, with traces of
tests/docs/train.py under the names that it uses, and must end with exit code 0 or 1 and print something or write a file. `python
train.py` is tests/docs/train.py on the stand-in driver; launchers are stubs that set the variables of the real
ones. A command that is named in a text without arguments is asked for its `--help`. What cannot be run here is in
NOT_RUN, with the reason, and is printed. The commands of docs/tutorial.md are run one after the other in one
folder, and must print what the page shows below each of them. Dates of docs/measurements are of their day, and are not checked."""

import argparse
import ast
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 120
"""Seconds that a command may run."""

NOT_RUN = {
    # how a command begins: why it is not run here
    "scripts/": "builds or needs a GPU; steps of scripts/test",
    "dist/": "the release; the same commands are run with what was built for the tests",
    "pip install": "installs",
    "sudo dpkg": "installs; scripts/test package",
    "tar -xzf": "installs; scripts/test package",
    "cargo install": "builds",
    "rustup target": "installs",
    "export ": "sets what the next lines need",
    "cd ": "the folder is another one here",
    "gpushim symbols 1": "no command: the first line of a file",
    "gpushim control": "asks a process that runs; tests/preload/asked.rs does",
    "gpushim top --once": "shows processes that record, and fails where there are none; tests/preload/top.rs has some",
    "docker": "no Docker here",
    "rattler-build": "scripts/test integrations builds the recipe",
    "module ": "no cluster here; scripts/test integrations reads the module file",
    "gpushim run python -m sglang": "starts a server; SGLang is not installed",
    "python3 -m verl": "trains; verl is not installed",
    "kubectl": "no cluster here",
    "sbatch": "no cluster here",
}
STUBS = {
    "torchrun": "sets RANK, LOCAL_RANK and WORLD_SIZE for 2 processes; PyTorch's launcher is not installed",
    "srun": "sets SLURM_PROCID for 2 processes; Slurm is not installed",
    "mpirun": "sets OMPI_COMM_WORLD_RANK for 2 processes; Open MPI is not installed",
    "pytest": "ignores its options; scripts/test package runs the plugin with the real one",
    "jq": "reads JSON, or JSON lines, and ignores its filter",
    "./solver": "is tests/docs/train.py",
    "jupyter": "is tests/docs/train.py",
    "ray": "is tests/docs/train.py; tests/integrations/test_ray.py runs the real one",
    "vllm": "is tests/docs/train.py; vLLM is not installed",
}
LAUNCH = """#!/bin/bash
# Starts what is named two times, with the rank in the variable of the launcher.
while [ $# -gt 0 ]; do case $1 in -n|--ntasks|--nnodes|--rdzv-endpoint) shift 2 ;; --nproc-per-node) shift 2 ;; -*) shift ;; *) break ;; esac; done
case $1 in *.py) set -- python "$@" ;; esac
for rank in 0 1; do {variables} "$@" || exit; done
"""
PLACES = {"FILE…": "train.trace", "FILE": "train.trace", "TRACE": "train.trace", "FORMAT": "json", "SECONDS": "0.01", "DIR": ".", "NAME": "train", "PID": "."}
LANGUAGES = {"sh", "console", "json", "toml", "yaml", "python", "dockerfile", "c", "sql", "text", ""}
INSTRUCTIONS = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT", "CMD", "ARG", "VOLUME", "USER"}


def pages(root):
    """README.md and what docs/ has, without the measurements."""
    return [root / "README.md", *sorted(file for file in (root / "docs").rglob("*.md") if "measurements" not in file.parts)]


def blocks(text):
    """(language, line, content) of each code block between fences; the text without them."""
    found, rest, inside = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*```(\w*)\s*$", line)
        if fence and inside is None:
            inside = (fence[1], number, [])
        elif fence:
            found.append((inside[0], inside[1], "\n".join(inside[2]) + "\n"))
            inside = None
        elif inside is None:
            rest.append((number, line))
        else:
            inside[2].append(line)
    return found, rest


def slug(heading):
    """The anchor of a heading, as GitHub and mdBook make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(file):
    return {slug(line.lstrip("#")) for _, line in blocks(file.read_text(encoding="utf-8"))[1] if line.startswith("#")}


def links(root):
    """Relative links that lead nowhere, and those of the book to what is not in it."""
    for page in [*pages(root), *sorted((root / "docs" / "measurements").glob("*.md")), root / "CONTRIBUTING.md"]:
        if not page.exists():
            continue
        for number, line in blocks(page.read_text(encoding="utf-8"))[1]:
            for where in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", re.sub(r"`[^`]*`", "", line)):
                where = where[0] or where[1]
                if re.match(r"[a-z]+:", where):
                    continue
                name, _, anchor = where.partition("#")
                file = (page.parent / name).resolve() if name else page
                if not file.exists():
                    yield f"{page.relative_to(root)}:{number}: {where} does not exist"
                elif (root / "docs") in page.parents and (root / "docs") not in file.parents:
                    yield f"{page.relative_to(root)}:{number}: {where} is not in the book; write its path as `code`"
                elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                    yield f"{page.relative_to(root)}:{number}: {name or page.name} has no heading #{anchor}"


def contents(root):
    """Files that the book's table of contents has and docs/ has not, and the other way round."""
    docs = root / "docs"
    listed = re.findall(r"\]\(([^)]+)\)", (docs / "SUMMARY.md").read_text(encoding="utf-8"))
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        yield f"docs/SUMMARY.md: {name} is in it twice"
    for name in listed:
        if not (docs / name).exists():
            yield f"docs/SUMMARY.md: {name} does not exist"
    for file in sorted(docs.rglob("*.md")):
        if str(file.relative_to(docs)) not in [*listed, "SUMMARY.md"]:
            yield f"docs/SUMMARY.md: {file.relative_to(docs)} is missing"


def sources(root):
    """Paths of source files, in texts and in comments of sources, that lead to none."""
    folders = [file.name for file in root.iterdir() if file.is_dir() and file.name not in ("target", "dist")]
    own = [str(file.relative_to(root)) for folder in folders for file in (root / folder).rglob("*.rs")]
    for page in [*pages(root), root / "CONTRIBUTING.md", *map(root.joinpath, own)]:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines() if page.exists() else [], 1):
            if page.suffix == ".rs" and not line.lstrip().startswith("//"):
                continue
            for path in re.findall(r"`([\w./-]+\.rs)`", line):
                # A path that begins with one of our folders is whole; of others the end is enough.
                is_whole = page.suffix == ".md" and path.partition("/")[0] in folders
                if path not in own and (is_whole or not any(name.endswith(f"/{path}") for name in own)):
                    yield f"{page.relative_to(root)}:{number}: {path} does not exist"


def yaml_parser(folder):
    """Whether YAML can be parsed: by what is installed, or from PyPI."""
    sys.path.append(str(folder))
    try:
        import yaml  # noqa: F401
    except ImportError:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder), "PyYAML==6.0.3"]
        return subprocess.run(argv, capture_output=True).returncode == 0
    return True


def parses(language, text):
    """What is wrong with a block, or nothing."""
    try:
        if language == "sh":
            done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
            return done.stderr.strip() or None
        if language == "json":
            json.loads(text)
        elif language == "python":
            ast.parse(text)
        elif language == "toml":
            import tomllib

            tomllib.loads(text)
        elif language == "yaml":
            import yaml

            for document in yaml.safe_load_all(text):
                if not isinstance(document, dict):
                    return "no mapping"
        elif language == "dockerfile":
            for line in text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#") and line.split()[0] not in INSTRUCTIONS:
                    return f"{line.split()[0]} is no instruction"
        elif language not in LANGUAGES:
            return f"{language} is none of {', '.join(sorted(filter(None, LANGUAGES)))}"
    except ImportError as error:
        return f"cannot be checked: {error}"
    except Exception as error:  # each parser has errors of its own
        return str(error).replace("\n", " ")
    return None


def syntax(root):
    for page in pages(root):
        for language, number, text in blocks(page.read_text(encoding="utf-8"))[0]:
            wrong = parses(language, text)
            if wrong:
                yield f"{page.relative_to(root)}:{number}: {language}: {wrong}"


def commands(page):
    """(line, command, whether it stands in a text) of each command of a page."""
    found, rest = blocks(page.read_text(encoding="utf-8"))
    for language, start, text in found:
        lines = re.sub(r"\\\n\s*", " ", text).splitlines()
        if language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif language == "yaml":
            # `run: command` of a workflow, and the lines of a script.
            lines = [re.sub(r"^\s*(- )?run: ", "", line).strip() for line in lines if re.match(r"\s*((- )?run: )?(\w+=\S+ )*(gpushim|srun|torchrun) ", line)]
        elif language != "sh":
            continue
        for line in lines:
            if line.strip() and not line.startswith("#"):
                yield start, line.strip(), False
    previous = ""
    for number, line in rest:
        if line.startswith("    ") and re.match(r"(\w+=\S+ )*(gpushim|scripts/\S+) ", line.strip()) and not re.match(r"\s*([-*]|\d+\.) ", previous):
            yield number, line.strip(), False
        previous = line if line.strip() and not line.startswith("    ") else previous
    text = "\n".join(line for _, line in rest)
    for inline in re.finditer(r"`((?:dist/)?gpushim [a-z][^`]*|[A-Z_]+=\S+ gpushim [^`]*)`", text):
        number = rest[text[: inline.start()].count("\n")][0]
        yield number, " ".join(inline[1].split()), True


VARIES = [
    # what differs between two runs of a command
    (re.compile(r"\d[\d.]* (?:ns|µs|ms|s|min)\b"), "TIME"),
    (re.compile(r"[\d.]+ [KM]iB on disk"), "SIZE on disk"),
    (re.compile(r"gpushim-\S+-\d+(?=\.trace|\.html)"), "gpushim-HOST-PID"),
]


def same_always(line):
    """A line of output without what varies."""
    for pattern, name in VARIES:
        line = pattern.sub(name, line)
    return " ".join(line.split())


def shown(page):
    """(line, command, lines that the page shows of its output) of each command of the console blocks of a page."""
    for language, start, text in blocks(page.read_text(encoding="utf-8"))[0]:
        if language == "console":
            for number, line in enumerate(text.splitlines(), start + 1):
                if line.startswith("$ "):
                    found = (number, line[2:], [])
                    yield found
                elif line.strip() not in ("", "…"):
                    found[2].append(line)


def tutorial(root, runner):
    """Commands of the tutorial that fail, or print something else than it shows. `…` stands for anything."""
    page = root / "docs" / "tutorial.md"
    folder = pathlib.Path(tempfile.mkdtemp(dir=runner.work))
    env = {name: runner.env[name] for name in ("PATH", "HOME", "LANG")}
    for number, line, expected in list(shown(page)):
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        where = f"{page.relative_to(root)}:{number}: `{line}`"
        if done.returncode not in (0, 1):
            yield f"{where}: exit code {done.returncode}: {done.stdout[-300:]}"
        said = iter(map(same_always, done.stdout.splitlines()))
        for wanted in expected:
            pattern = ".*".join(map(re.escape, same_always(wanted).split("…")))
            if not any(re.fullmatch(pattern, line) for line in said):
                yield f"{where}: does not print {wanted!r} there, but {done.stdout}"
                break


class Runner:
    """Runs commands in folders of their own."""

    def __init__(self, target, standin, work):
        self.work, self.built = work, target / "debug"
        self.bin, self.fixture = work / "bin", work / "fixture"
        self.bin.mkdir()
        (self.bin / "python").symlink_to(getattr(sys, "_base_executable", sys.executable))
        stubs = {
            "torchrun": LAUNCH.format(variables="RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2"),
            "srun": LAUNCH.format(variables="SLURM_PROCID=$rank SLURM_JOB_ID=1"),
            "mpirun": LAUNCH.format(variables="OMPI_COMM_WORLD_RANK=$rank"),
            "jq": "#!/usr/bin/env python3\nimport json, sys\nprint(len(json.loads(sys.stdin.read())))\n",
        }
        for name in ("pytest", "jupyter", "ray", "vllm"):
            stubs[name] = "#!/bin/sh\nexec python train.py\n"
        for name, text in stubs.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.env = {
            "PATH": f"{self.bin}:{self.built}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(standin), "HOME": str(work), "LANG": "C.UTF-8",
            "STANDIN_MEMORY": "80G", "TINYTORCH": str(ROOT / "tests" / "programs" / "site-packages"),
            "PYTHONPATH": str(ROOT / "tests" / "programs" / "site-packages"), "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.fixture.mkdir()
        program = (ROOT / "tests" / "docs" / "train.py").read_text()
        (self.fixture / "train.py").write_text(program)
        shutil.copy(ROOT / "tests" / "programs" / "situations.py", self.fixture)
        shutil.copy(ROOT / "tests" / "data" / "training.pickle.gz", self.fixture / "snapshot.pickle")
        (self.fixture / "solver").write_text("#!/bin/sh\nexec python train.py\n")
        (self.fixture / "solver").chmod(0o755)
        env = self.env | {"GPUSHIM_TRACE_MODE": "full", "GPUSHIM_TRACE": "train.trace"}
        done = subprocess.run(["gpushim", "run", "--quiet", "python", "train.py"], cwd=self.fixture, env=env, capture_output=True, text=True)
        if done.returncode or not (self.fixture / "train.trace").exists():
            sys.exit(f"check: the fixture was not recorded: {done.stderr}")
        baseline = ["gpushim", "check", "--save-baseline", "memory.toml", "train.trace"]
        subprocess.run(baseline, cwd=self.fixture, env=self.env, capture_output=True)

    def folder(self, line):
        """A folder with the traces that a command names."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        for file in self.fixture.iterdir():
            if not file.name.startswith("train.trace"):
                shutil.copy2(file, folder)
        for word in shlex.split(line):
            if ".trace" in word and "=" not in word:
                for name in {word.replace("*", text) for text in ("0", "1")}:
                    name = name.removesuffix(".gz")
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    for file in self.fixture.glob("train.trace*"):
                        subprocess.run(["cp", "--sparse=always", file, folder / file.name.replace("train.trace", name)], check=True)
        if not list(folder.glob("*.trace")) and " run " not in f" {line} ":
            for file in self.fixture.glob("train.trace*"):
                name = file.name.replace("train.trace", "gpushim-node7-4711.trace")
                subprocess.run(["cp", "--sparse=always", file, folder / name], check=True)
        return folder

    def wrong(self, line, is_inline):
        """What is wrong with a command, or nothing."""
        line = line.replace("dist/gpushim", "gpushim")
        line = re.sub(r"/var/lib/node_exporter/|/tmp/(?=gpushim)|~/|/usr/lib/gpushim/(?=libgpushim)|/shared/(?=job)", "", line)
        # Of a form, what is optional is left out.
        line = re.sub(r"\[[^\]]*\]", "", line)
        line = re.sub(r"\s+#.*$", "", line).replace("…", "").replace("127.0.0.1:9400", "127.0.0.1:0")
        try:
            words = shlex.split(line)
        except ValueError as error:
            return str(error)
        for place, value in PLACES.items():
            line = re.sub(rf"(?<![\w-]){place}(?![\w-])", value, line) if place in words else line
        words = shlex.split(line)
        if is_inline and words[0] == "gpushim" and len(words) == 2:
            line += " --help"
        elif is_inline and words[:2] == ["gpushim", "run"] and words[-1].startswith("-"):
            line += " python train.py"
        server = "--listen" in words
        folder = self.folder(line)
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", line], cwd=folder, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=3 if server else LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return None if server and "http://" in said else f"did not end: {said[-300:]}"
        finally:
            wrote = [file for file in folder.rglob("*") if file.is_file() and file.stat().st_mtime >= self.began]
            shutil.rmtree(folder, ignore_errors=True)
        if process.returncode not in (0, 1):
            return f"exit code {process.returncode}: {said.strip()[-300:]}"
        if not said.strip() and not wrote:
            return "printed nothing"
        if "Traceback" in said:
            return said.strip()[-300:]
        return None

    began = 0.0


def reason(line):
    """Why a command is not run here, or nothing."""
    return next((why for start, why in NOT_RUN.items() if line.startswith(start) and not line.startswith("dist/gpushim")), None)


def ran(root, runner, told):
    """Commands that fail."""
    done = {}
    for page in pages(root):
        for number, line, is_inline in commands(page):
            if page.name == "tutorial.md" and not is_inline:
                continue
            why = reason(line)
            if why or "gpushim" not in line and line.split()[0] not in STUBS:
                told.append(f"not run: {line} ({why or 'another program'})")
                continue
            key = (re.sub(r"\s+#.*$", "", line), is_inline)
            if key not in done:
                done[key] = runner.wrong(*key)
            if done[key]:
                yield f"{page.relative_to(root)}:{number}: `{line}`: {done[key]}"
    told.append(f"{len(done)} commands run")


OTHERS_OPTIONS = {
    # options in texts that are not of gpushim's command: page, and what has them
    "--gpu-memory-tolerance": "the pytest plugin",
    "--num-key-value-heads": "an example of a program's own",
    "--name": "an example of a program's own",
    "--here": "scripts/guide",
    "--doc": "scripts/faults",
    "--ipc": "Docker",
    "--distributed-executor-backend": "vLLM",
    "--enable-memory-saver": "SGLang",
    "--cuda-memory-usage": "nsys",
}


def options(root, runner):
    """Options in texts that no subcommand has."""
    def told(*words):
        return subprocess.run(["gpushim", *words], env=runner.env, cwd=runner.work, capture_output=True, text=True).stdout

    subcommands = re.findall(r"^  ([a-z]+)  ", told("--help"), re.MULTILINE)
    known = set(OTHERS_OPTIONS)
    for name in subcommands:
        known |= set(re.findall(r"--[a-z][\w-]*", told(name, "--help")))
    for page in pages(root):
        for number, line in blocks(page.read_text(encoding="utf-8"))[1]:
            for option in re.findall(r"`(--[a-z][\w-]*)", line):
                if option not in known:
                    yield f"{page.relative_to(root)}:{number}: no subcommand has {option}"


def self_test(runner, work):
    """Each kind of mistake is found."""
    root = work / "self"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "SUMMARY.md").write_text("- [One](one.md)\n- [Gone](gone.md)\n")
    (root / "docs" / "one.md").write_text("# One\n")
    (root / "docs" / "two.md").write_text("[a](missing.md) [b](one.md#two) [c](one.md#one) [d](../README.md)\n")
    good = "```sh\ngpushim report train.trace | head -3\n```\n`gpushim peak --top 3`\n"
    mistakes = [
        "```sh\nif true\n```\n", "```yaml\na: [1\n```\n", "```json\n{\n```\n", "```dockerfile\nFORM debian\n```\n", "```python\ndef\n```\n", "```shell\nls\n```\n",
    ]
    wrong = [
        "gpushim report --no-such-option", "gpushim nothing", "gpushim run --no-such python train.py", "gpushim check --max-peek 1GiB train.trace",
        "srun gpushim run --no-such python train.py", "gpushim report --format yaml",
    ]
    good += "`--quiet` `--no-such-option` `src/one.rs` `one.rs` `one.rs:3`\n"
    (root / "src").mkdir()
    (root / "src" / "one.rs").write_text("//! `one.rs` `src/one.rs` `gone.rs`\nlet text = \"`gone.rs`\";\n")
    (root / "docs" / "two.md").write_text((root / "docs" / "two.md").read_text() + "`src/gone.rs` `lib/one.rs`\n")
    (root / "README.md").write_text(good + "".join(mistakes) + "".join(f"`{line}`\n```sh\n{line}\n```\n" if line.startswith("gpushim") else f"```sh\n{line}\n```\n" for line in wrong))
    steps = "$ gpushim demo losses\n  1. `forward …` and 2 others keep 1.0 MiB in each pass\n$ gpushim growth\n…\n{} …\n$ gpushim nothing\n"
    (root / "docs" / "tutorial.md").write_text("```console\n" + steps.format("Kept by") + steps.format("Lost by") + "```\n")
    expected = {"tutorial": (tutorial(root, runner), 3), "links": (links(root), 4), "contents": (contents(root), 3), "options": (options(root, runner), 1), "sources": (sources(root), 3), "syntax": (syntax(root), len(mistakes)), "commands": (ran(root, runner, []), 2 * len(wrong) - 1)}
    for name, (found, count) in expected.items():
        found = list(found)
        if len(found) != count:
            sys.exit(f"check: self-test: {name}: {len(found)} of {count} mistakes were found: {found}")
    shutil.rmtree(root)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--standin", type=pathlib.Path, required=True)
    parser.add_argument("--self-test", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        runner = Runner(asked.target.resolve(), asked.standin.resolve(), work)
        runner.began = time.time() - 0.05
        if not yaml_parser(work / "yaml"):
            print("check: PyYAML is not installed, and could not be had from PyPI")
            return 3
        if asked.self_test:
            self_test(runner, work)
            print("Each planted mistake was found.")
            return 0
        told = []
        wrong = [*links(ROOT), *contents(ROOT), *sources(ROOT), *syntax(ROOT), *options(ROOT, runner), *tutorial(ROOT, runner), *ran(ROOT, runner, told)]
    for line in dict.fromkeys(told):
        print(line)
    for name, what in STUBS.items():
        print(f"stub: {name} {what}")
    for line in wrong:
        print(f"check: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
