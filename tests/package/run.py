#!/usr/bin/env python3
"""Installs each package into a fresh place, and uses it there for a first report of a program on the stand-in driver.

    tests/package/run.py --target DIR --packages DIR --standin DIR

The wheel goes into a new virtual environment, where the tests of the Python package and of the pytest plugin
run, too; `gpushim demo` runs in one of each Python of PYTHONS; the .deb and the tarball are unpacked. Exit code: 0 all well, 1 something failed, 3 nothing failed but something
could not be run here (said on the last lines).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True
SHARED = (
    "man/man1/gpushim.1", "man/man1/gpushim-report.1", "bash-completion/completions/gpushim", "zsh/site-functions/_gpushim",
    "fish/vendor_completions.d/gpushim.fish",
)
"""What the wheel brings for the shell, below share/ of its environment."""
PYTHONS = ("3.9", "3.13")
"""Versions in whose fresh environments the demo is run."""
DEMO_S = 60
"""Seconds from the wheel to a finding, with an environment that is there."""
LIMIT = 300
"""Seconds that one command may take."""


class Failure(Exception):
    """What was not as it must be."""


def run(argv, env=None, codes=(0,), cwd=None):
    """What a command prints on both outputs."""
    argv = [str(part) for part in argv]
    done = subprocess.run(argv, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    if done.returncode not in codes:
        raise Failure(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def expect(is_so, what):
    if not is_so:
        raise Failure(what)


def python_of(version):
    """A Python of this version: of the path, or of pyenv; None if there is none."""
    there = sorted((pathlib.Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python3"))
    return shutil.which(f"python{version}") if not there else there[-1]


def finding():
    """The lines of the first finding in the tutorial: of the summary that `gpushim demo` prints."""
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    block = text.split("$ gpushim demo\n")[1].split("```")[0]
    lines = [line.strip() for line in block.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("1. "))
    last = next(number for number, line in enumerate(lines) if line.startswith("fix: "))
    return lines[first : last + 1]


def only(folder, pattern):
    found = sorted(folder.glob(pattern))
    expect(len(found) == 1, f"{folder} has {len(found)} of {pattern}")
    return found[0]


class Packages:
    """The packages, and where they are tried."""

    def __init__(self, options):
        self.options = options
        self.arch = os.uname().machine
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="package-", dir=options.target))
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSHIM_", "STANDIN_", "LD_", "PYTHON"))}
        self.env = {
            **variables,
            "LD_LIBRARY_PATH": str(options.standin),
            "STANDIN_MEMORY": "1G",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PACKAGE_WORK": str(self.work),
        }

    def first_report(self, name, command, python):
        """A program recorded and reported as somebody would who has just installed it."""
        version = run([command, "--version"], self.env)
        source = re.fullmatch(r"gpushim (\S+), commit (?:[0-9a-f]{12}(?:-modified)?|unknown), build id [0-9a-f]+\n", version)
        expect(source, f"{name}: --version says {version!r}")
        trace = self.work / f"{name}.trace"
        argv = [command, "run", "--trace", trace, "--", python, ROOT / "tests/programs/train.py", "--steps", "8", "--layers", "4", "--width", "256"]
        run(argv, self.env)
        report = run([command, "report", trace], self.env)
        expect(trace.name in report and "train.py" in report, f"{name}: the report is {report!r}")
        told = json.loads(run([command, "report", "--format", "json", trace], self.env))["results"][0]
        said = [value for key, value in told["facts"] if key == "library"]
        # The same release; each file has a build id of its own.
        expect(len(said) == 1 and said[0].split(", build id")[0] == version[8:].split(", build id")[0], f"{name}: the trace is of {said}, the command {version!r}")
        expect(told["summary"]["events"]["recorded"] > 100, f"{name}: {told['summary']}")
        # Exit code 1: what this machine lacks, such as a GPU. Not what was installed.
        doctor = json.loads(run([command, "doctor", "--format", "json"], self.env, (0, 1)))["results"][0]["checks"]
        ours = {check["what"]: check for check in doctor if check["what"] in ("gpushim", "libgpushim.so")}
        expect(len(ours) == 2 and all(check["verdict"] == "ok" for check in ours.values()), f"{name}: doctor says {ours}")
        expect(said[0] in ours["libgpushim.so"]["detail"], f"{name}: doctor says {ours}, the trace {said}")
        print(f"{name}: {version.strip()}, {told['summary']['events']['recorded']} events reported")

    def wheel(self):
        """The wheel in a new virtual environment; a reason if that cannot be made."""
        wheel = only(self.options.packages, f"gpushim-*-manylinux_*_{self.arch}.whl")
        tools, wheels = self.options.target / "package-tools", self.options.target / "package-wheels"
        python = tools / "bin/python"
        mark = wheels / f"python{sys.version_info.major}.{sys.version_info.minor}"
        if not mark.exists():
            try:
                run([sys.executable, "-m", "venv", "--clear", tools])
                # Of which one installs into another environment.
                run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip>=23"])
                run([python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "-d", wheels, "pytest"])
            except (Failure, subprocess.TimeoutExpired) as error:
                return f"the wheel: no environment for it: {str(error).strip().splitlines()[-1][:200]}"
            mark.touch()
        fresh = self.work / "venv"
        run([sys.executable, "-m", "venv", "--without-pip", fresh])
        python_there = fresh / "bin/python"
        pip = [python, "-m", "pip", "--python", python_there, "--quiet", "--disable-pip-version-check"]
        run([*pip, "install", "--no-index", "--find-links", wheels, wheel, "pytest"])
        run([*pip, "check"])
        for path in SHARED:
            expect((fresh / "share" / path).is_file(), f"the wheel brings no share/{path}")
        run([python_there, "-c", "import gpushim.integrations.loggers"], self.env)
        self.first_report("wheel", fresh / "bin/gpushim", python_there)
        said = run([python_there, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", HERE, "-rs", HERE], self.env)
        print("wheel: its Python package and pytest plugin:", said.strip().splitlines()[-1])
        run([*pip, "uninstall", "--yes", "gpushim"])
        left = [path for path in fresh.rglob("*") if "gpushim" in str(path.relative_to(fresh))]
        expect(not left, f"the wheel leaves {left} behind")
        return ""

    def demo(self):
        """The wheel in a fresh environment of each Python: the tutorial's first finding, without Rust and a CUDA driver."""
        wheel, skipped = only(self.options.packages, f"gpushim-*-manylinux_*_{self.arch}.whl"), []
        expected = finding()
        expect(len(expected) >= 4, f"the tutorial's first finding is {expected}")
        for version in PYTHONS:
            python = python_of(version)
            if python is None:
                skipped.append(version)
                continue
            fresh, folder = self.work / f"venv-{version}", self.work / f"demo-{version}"
            folder.mkdir()
            run([python, "-m", "venv", fresh])
            browser = folder / "browser"
            browser.write_text(f'#!/bin/sh\necho "$1" >"{folder}/opened"\n')
            browser.chmod(0o755)
            env = {"PATH": f"{fresh}/bin:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "BROWSER": str(browser)}
            expect(shutil.which("cargo", path=env["PATH"]) is None, "Rust is on the path")
            started = time.monotonic()
            run([fresh / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel], env)
            said = run([fresh / "bin/gpushim", "demo", "--open"], env, cwd=folder)
            seconds = time.monotonic() - started
            # Before 3.11 functions have no class in their names.
            names = [line if int(version[2:]) >= 11 else line.replace("Leaky.forward", "forward") for line in expected]
            lines = [line.strip() for line in said.splitlines()]
            expect([line for line in lines if line in names] == names, f"Python {version}: not the tutorial's finding, {names}: {said}")
            expect(seconds <= DEMO_S, f"Python {version}: {seconds:.0f} s to the finding")
            page = folder / (folder / "opened").read_text().strip()
            expect("<html" in page.read_text(encoding="utf-8")[:500].lower(), f"{page} is no page")
            for line in ("gpushim report", "gpushim growth"):
                run([fresh / "bin/gpushim", *line.split()[1:]], env, (0, 1), folder)
            kept = run([fresh / "bin/gpushim", "demo", "--list"], env)
            expect("leaky-layer" in kept and "losses" in kept, f"the list is {kept}")
            run([fresh / "bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "gpushim"], env)
            left = [path for path in (fresh / "lib/gpushim").rglob("*") if path.is_file()]
            expect(not left, f"the demo leaves {left} behind")
            print(f"demo: Python {version}: installed, recorded, found and shown in {seconds:.1f} s")
        return f"the demo: no Python {' or '.join(skipped)} here" if skipped else ""

    def deb(self):
        """The .deb unpacked by Debian's own tool; a reason if there is none."""
        if shutil.which("dpkg-deb") is None:
            return "the .deb: there is no dpkg-deb here"
        package = only(self.options.packages, "gpushim_*_amd64.deb" if self.arch == "x86_64" else "gpushim_*_arm64.deb")
        fields = run(["dpkg-deb", "--field", package])
        expect("Package: gpushim\n" in fields and "Depends: libc6 (>= 2." in fields, fields)
        folder = self.work / "deb"
        run(["dpkg-deb", "--extract", package, folder])
        run(["dpkg-deb", "--control", package, self.work / "control"])
        sums = (self.work / "control/md5sums").read_text()
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        expect([line.split("  ")[1] for line in sums.splitlines()] == files, "md5sums lists other files")
        subprocess.run(["md5sum", "--quiet", "--check", self.work / "control/md5sums"], cwd=folder, check=True)
        for path in ("usr/lib/gpushim/demo/libcuda.so.1", "usr/share/man/man1/gpushim-report.1.gz", "usr/share/doc/gpushim/copyright", "usr/share/doc/gpushim/THIRD-PARTY.md",
                     "usr/share/bash-completion/completions/gpushim", "usr/include/gpushim.h"):
            expect(path in files, f"the .deb has no {path}")
        self.first_report("deb", folder / "usr/bin/gpushim", sys.executable)
        return ""

    def tarball(self):
        package = only(self.options.packages, f"gpushim-*-{self.arch}-linux-gnu.tar.gz")
        with tarfile.open(package) as archive:
            archive.extractall(self.work / "tarball")
        folder = only(self.work / "tarball", "*")
        for path in ("lib/gpushim/demo/situations.py", "THIRD-PARTY.md", "LICENSE-MIT", "README.md", "docs/install.md", "share/man/man1/gpushim.1", "share/gpushim/slurm/task-prolog"):
            expect((folder / path).is_file(), f"the tarball has no {path}")
        self.first_report("tarball", folder / "bin/gpushim", sys.executable)
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--target", "--packages", "--standin"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    packages = Packages(parser.parse_args())
    failed, skipped = False, []
    try:
        for kind in (packages.tarball, packages.deb, packages.wheel, packages.demo):
            try:
                if reason := kind():
                    skipped.append(reason)
            except (Failure, OSError, KeyError, subprocess.SubprocessError) as error:
                failed = True
                print(f"{kind.__name__}: FAILED: {error}")
    finally:
        shutil.rmtree(packages.work, ignore_errors=True)
    for reason in skipped:
        print(f"not tried: {reason}")
    sys.exit(1 if failed else 3 if skipped else 0)


if __name__ == "__main__":
    main()
