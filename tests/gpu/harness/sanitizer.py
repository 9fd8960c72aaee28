"""Section `sanitizer`: compute-sanitizer's memory checker over the shim, and the long stress of
stream-ordered memory on the device."""

import shutil

from .configurations import NATIVE, PLAIN, missing, said, why
from .jobs import together

CHECKED = {
    # Arguments such that the checker, which slows kernels down, needs some ten seconds.
    "alloc_static_shared": [],
    "stress_shared": ["4", "100"],
    "async_small": [],
}
SECONDS = "32"


def run(session, built):
    """The stress alone, then the checker on several programs at a time."""
    stress(session, built)
    tool = shutil.which("compute-sanitizer")
    if not tool:
        session.result("sanitizer", "memcheck", "SKIP", "no compute-sanitizer here")
        return
    checker = [tool, "--tool", "memcheck", "--target-processes", "all", "--report-api-errors", "no", "--error-exitcode", "9"]
    checks = {name: lambda name=name: memcheck(session, checker, name) for name in CHECKED if name in built}
    together(session, "sanitizer", checks)


def memcheck(session, checker, name):
    """No finding natively and none under the shim."""
    argv = [*checker, session.work / name, *CHECKED[name]]
    natively = NATIVE.run(session, f"sanitizer {name}", argv, timeout=60)
    shimmed = PLAIN.run(session, f"sanitizer {name}", argv, timeout=90)
    if natively.skipped or shimmed.skipped:
        session.result("sanitizer", name, "SKIP", "no time left")
        return
    clean = all("ERROR SUMMARY: 0 errors" in outcome.stdout + outcome.stderr for outcome in (natively, shimmed))
    fine = shimmed.code == natively.code == 0 and clean
    detail = f"code {shimmed.code}, natively {natively.code}"
    session.result("sanitizer", name, "PASS" if fine else "FAIL", detail + ("" if fine else f"; {why(shimmed)}"))


def stress(session, built):
    """No mismatch in half a minute; none natively either; and mismatches where an order is left out."""
    if "async_stress" not in built:
        session.result("sanitizer", "async_stress", "FAIL", "async_stress was not built")
        return
    argv = [session.work / "async_stress"]
    natively = NATIVE.run(session, "async_stress", [*argv, "--seconds", "4"], timeout=30)
    shimmed = PLAIN.run(session, "async_stress", [*argv, "--seconds", SECONDS], timeout=60)
    if not missing(session, "sanitizer", "async_stress", [("native", natively), ("shim", shimmed)]):
        same = natively.stdout == shimmed.stdout and shimmed.stdout.startswith("no mismatches")
        did = shimmed.stderr.strip().splitlines()[-1:]
        detail = f"{SECONDS} s, 8 threads: {' '.join(did)}; natively in 4 s: {' '.join(natively.stderr.strip().splitlines()[-1:])}"
        detail += f"; shim says: {said(shimmed)[0][:120]}" if said(shimmed) else ""
        session.result("sanitizer", "async_stress", "PASS" if same else "FAIL", detail)
    broken = PLAIN.run(session, "async_stress, an order left out", [*argv, "--seconds", "3", "--broken"], timeout=30)
    if not broken.skipped:
        # Mismatches, or a kernel at an address that has no memory any more: both are seen.
        seen = broken.code != 0
        detail = f"code {broken.code}: {' '.join((broken.stdout + ' ' + broken.stderr).split())[:160]}"
        session.result("sanitizer", "an order left out is seen", "PASS" if seen else "FAIL", detail)
