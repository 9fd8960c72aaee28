#!/usr/bin/env python3
"""Two commands to the first report, in fresh systems of Debian: 11 has the glibc of Ubuntu 20.04, 2.31.

    tests/package/roots.py --packages DIR --standin DIR --folder DIR [SUITE …]     (bullseye bookworm)

Makes each system with debootstrap in the folder, once; needs root, debootstrap and a network. The stand-in driver must
be one for an old glibc: cargo zigbuild --target x86_64-unknown-linux-gnu.2.28 -p standin-cuda, and libcuda.so as
libcuda.so.1 in a folder. Exit code: 0 all well, 1 something failed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MORE = "python3,python3-pip,python3-venv"
RUN = "gpushim run python3 train.py --steps 8 --layers 4 --width 256"
WAYS = {
    "wheel": ("python3 -m venv new", "new/bin/pip install --no-index --quiet {wheel}", f"new/bin/{RUN}"),
    "deb": ("", "dpkg -i {deb}", RUN),
}
"""By package: what comes before on any system, and the two commands."""


def made(folder, suite):
    """The folder of the system, fresh from its packages."""
    system = folder / suite
    if not (folder / f"{suite}.made").exists():
        shutil.rmtree(system, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={MORE}", suite, system], check=True, stdout=subprocess.DEVNULL)
        (folder / f"{suite}.made").touch()
    return system


def inside(system, command):
    """What a command in the system prints, its exit code, and its seconds."""
    argv = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={system}/proc", "chroot", system, "sh", "-c", f"cd /try && {command}"]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LD_LIBRARY_PATH": "/try/standin", "STANDIN_MEMORY": "1G", "LC_ALL": "C.UTF-8"}
    started = time.monotonic()
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.stdout, done.returncode, time.monotonic() - started


def attempt(system, options, way):
    """One package in one system: what went wrong, or nothing."""
    place = system / "try"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(options.standin, place / "standin")
    shutil.copy(ROOT / "tests/programs/train.py", place)
    names = {}
    for kind, pattern in (("wheel", "gpushim-*_x86_64.whl"), ("deb", "gpushim_*_amd64.deb")):
        (found,) = options.packages.glob(pattern)
        shutil.copy(found, place)
        names[kind] = found.name
    before, *commands = WAYS[way]
    if before:
        text, code, _ = inside(system, before)
        if code:
            return f"{before}: {text}"
    told = []
    for command in commands:
        text, code, seconds = inside(system, command.format(**names))
        if code:
            return f"{command}: exit code {code}: {text}"
        told.append(f"{seconds:.1f} s")
    glibc = inside(system, "ldd --version")[0].split("\n")[0].split()[-1]
    if "gpushim:" not in text or ".trace" not in text:
        return f"no first report: {text}"
    print(f"{system.name} (glibc {glibc}), {way}: installed in {told[0]}, recorded and summed up in {told[1]}")
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--packages", "--standin", "--folder"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("suites", nargs="*", default=["bullseye", "bookworm"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() or not shutil.which("debootstrap"):
        sys.exit("roots.py: needs root and debootstrap")
    failed = False
    for suite in options.suites:
        system = made(options.folder.resolve(), suite)
        for way in WAYS:
            wrong = attempt(system, options, way)
            failed |= bool(wrong)
            if wrong:
                print(f"{suite}, {way}: FAILED: {wrong}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
