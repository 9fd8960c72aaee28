#!/usr/bin/env python3
"""Runs the real clients on the stand-in driver, without and with the shim.

    tests/clients/run.py --target DIR --dist DIR --standin DIR --cudarc FILE

For each: the same output, the same exit code, no finding of the stand-in's oracle, and in the trace
every allocation that the program says it made, with its bytes. Then what `gpushim export` writes of those
traces, and of the snapshots in tests/data, is read by those it is written for (formats.py). The Python clients
live in virtual environments under the target folder, with the versions of requirements*.txt. Exit code: 0
all well, 1 a client failed, 3 none failed but some could not be run here (said on the last lines).
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "gpu"))
from harness import traces

LIMIT = 180
"""Seconds that one run may take."""


VIZ = "torch==2.6.0"
"""Of which PyTorch `_memory_viz.py` is: the wheel for another system is a tenth of the size of ours, and that
file is the same."""


def environment(target, name="clients", file="requirements.txt", only_wheels=True):
    """The virtual environment's Python, made if need be; or the reason why there is none."""
    requirements = (HERE / file).read_bytes()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = target / f"{name}-python{version}"
    python, mark = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(requirements).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return python, ""
    for argv in (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *(["--only-binary=:all:"] if only_wheels else []), "-r", HERE / file],
    ):
        done = subprocess.run([str(part) for part in argv], capture_output=True, text=True)
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
            return None, f"Python {version}: {lines[-1][:200]}"
    mark.write_text(wanted)
    return python, ""


def fetched(target, argv, archive, member):
    """A file out of a package, kept under the target folder; or the reason why it cannot be had."""
    kept = target / "formats" / argv[-1] / pathlib.Path(member).name
    if kept.exists():
        return kept, ""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        try:
            done = subprocess.run([str(part) for part in argv], cwd=folder, capture_output=True, text=True, timeout=300)
            said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            found = sorted(pathlib.Path(folder).glob(archive))
            if done.returncode != 0 or not found:
                return None, said[:200]
            if archive.endswith(".whl"):
                content = zipfile.ZipFile(found[0]).read(member)
            else:
                content = tarfile.open(found[0]).extractfile(member).read()
        except (OSError, KeyError, subprocess.TimeoutExpired, tarfile.TarError, zipfile.BadZipFile) as error:
            return None, str(error)[:200]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(content)
    return kept, ""


def formats(options, traces):
    """Whether the exports are read by others as they must be, and what was not looked at."""
    python, reason = environment(options.target, "formats", "requirements-formats.txt")
    if not python:
        return True, [f"export, metrics: no environment for their readers: {reason}"]
    skipped = []
    pip = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    pip += ["--platform", "macosx_11_0_arm64", "--python-version", "3.12", VIZ]
    viz, reason = fetched(options.target, pip, "torch-*.whl", "torch/cuda/_memory_viz.py")
    if not viz:
        skipped.append(f"export memory-viz by PyTorch's own module: {reason}")
    with tempfile.TemporaryDirectory(dir=options.target) as work:
        argv = [python, HERE / "formats.py", "--command", options.dist / "gpushim", "--work", work]
        argv += (["--viz", viz] if viz else []) + traces
        done = subprocess.run([str(part) for part in argv])
    return done.returncode == 0, skipped


class Runner:
    """Runs one client both ways and judges."""

    def __init__(self, options):
        self.options = options
        self.command = options.dist / "gpushim"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="clients-"))
        self.failures = 0

    def log(self, text):
        """What traces.read wants to keep; shown only when asked for."""
        if self.options.verbose:
            print(text)

    def once(self, name, argv, shim):
        """One run; the finished process and its folder."""
        folder = self.work / f"{name}-{'shim' if shim else 'native'}"
        folder.mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSHIM_", "STANDIN_"))}
        env |= {
            "LD_LIBRARY_PATH": str(self.options.standin),
            "NUMBA_CUDA_DRIVER": str(self.options.standin / "libcuda.so.1"),
            "STANDIN_MEMORY": "1G",
            "STANDIN_REPORT": str(folder / "findings"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RUST_BACKTRACE": "0",
        }
        if shim:
            env |= {"LD_PRELOAD": str(self.options.dist / "libgpushim.so"), "GPUSHIM_TRACE": str(folder / "%p.trace")}
        done = subprocess.run([str(part) for part in argv], env=env, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
        done.traces = sorted(folder.glob("*.trace"))
        findings = folder / "findings"
        done.findings = findings.read_text().splitlines() if findings.exists() else []
        return done

    def problems(self, native, shimmed):
        """Everything that is not as it must be."""
        if native.returncode != 0:
            return [f"fails without the shim: code {native.returncode}: {native.stderr.strip()[-400:]}"]
        found = []
        if shimmed.returncode != 0:
            found.append(f"code {shimmed.returncode} under the shim: {shimmed.stderr.strip()[-400:]}")
        if native.stdout != shimmed.stdout:
            pairs = zip(native.stdout.splitlines(), shimmed.stdout.splitlines())
            found.append("output differs: " + next((f"{a!r} became {b!r}" for a, b in pairs if a != b), "one is shorter"))
        found += [f"oracle: {line}" for done in (native, shimmed) for line in done.findings[:3]]
        said = re.search(r"^allocations (\d+) bytes (\d+) stream-ordered (\d+)$", native.stdout, re.M)
        if not said:
            return found + ["it did not say how many allocations it made"]
        count, total, ordered = map(int, said.groups())
        story = traces.read(self, shimmed)
        seen = (story.allocations["device"], story.bytes["device"], story.allocations["pool_async"])
        if seen != (count, total, ordered):
            found.append(f"asked for {count} allocations, {total} bytes, {ordered} stream-ordered; the trace holds {seen}")
        if len(shimmed.traces) != 1:
            found.append(f"{len(shimmed.traces)} trace files")
        return found + story.errors

    def judge(self, name, argv):
        """Both runs, one line."""
        try:
            native, shimmed = self.once(name, argv, False), self.once(name, argv, True)
            found = self.problems(native, shimmed)
        except subprocess.TimeoutExpired:
            found = [f"took more than {LIMIT} s"]
        self.failures += bool(found)
        lines = "" if found else f" ({len(native.stdout.splitlines())} equal lines; {native.stdout.splitlines()[-1]})"
        print(f"{'FAIL' if found else 'ok'}   {name}{lines}", *found, sep="\n       " if found else "", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true")
    for name in ("target", "dist", "standin", "cudarc"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=True)
    options = parser.parse_args()
    runner = Runner(options)
    runner.judge("cudarc", [options.cudarc])
    python, reason = environment(options.target)
    if python:
        runner.judge("numba", [python, HERE / "numba_client.py"])
        runner.judge("cuda-bindings", [python, HERE / "cuda_bindings_client.py"])
    else:
        print(f"skip numba, cuda-bindings: no environment for them: {reason}")
    sound, skipped = formats(options, sorted(runner.work.glob("*-shim/*.trace")))
    for line in skipped:
        print(f"skip {line}")
    if runner.failures or not sound:
        return 1
    return 0 if python and not skipped else 3


if __name__ == "__main__":
    sys.exit(main())
