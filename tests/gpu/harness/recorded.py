"""Section `recorded`: under `gpushim run`, which only records, a program makes the driver calls that it makes
natively, and computes the same bits. The driver's own report counts the calls (tests/gpu/driver_calls.c)."""

import collections
import glob
import os
import re
import site
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from .basics import NATIVE, PYTHON, first_difference
from .session import GPU

SLOT = struct.Struct("48sQQQ")
QUERY = re.compile(r"Get|Query|IsCapturing|TotalMem|PushCurrent|PopCurrent")
"""Part of the names of functions that change nothing, of which recording calls some more; for some it makes a context current."""
TIMED = re.compile(r"Event")
"""Part of the names of functions that programs call by time: PyTorch makes an event where it finds none complete."""


def library(session):
    """Builds the library that counts; an error as text."""
    built = session.work / "libdriver_calls.so"
    done = subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(built), str(GPU / "driver_calls.c"), "-ldl"],
                          capture_output=True, text=True)
    return built, done.stderr


def cupti():
    """The path of libcupti: of PyTorch's packages, or the toolkit's."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    patterns = [f"{folder}/nvidia/**/libcupti.so.*[0-9]" for folder in folders]
    patterns += ["/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.*[0-9]", "/usr/local/cuda*/targets/*/lib/libcupti.so.*[0-9]"]
    return next((path for pattern in patterns for path in sorted(glob.glob(pattern, recursive=True))), None)


def counted(session, name, argv, counter, env, timeout):
    """Runs a program with its driver calls counted; the outcome, and the counts of all its processes."""
    prefix = session.folder() / "calls"
    counting = {"CUDA_INJECTION64_PATH": str(counter), "DRIVER_CALLS": str(prefix), "DRIVER_CALLS_CUPTI": cupti()}
    outcome = session.run(name, argv, env={**env, **counting}, timeout=timeout)
    calls = collections.Counter()
    for path in glob.glob(f"{prefix}-*"):
        with open(path, "rb") as file:
            for function, count, failed, sizes in SLOT.iter_unpack(file.read()):
                if count:
                    function = function.rstrip(b"\0").decode()
                    calls[function] += count
                    calls[function + " sizes"] = (calls[function + " sizes"] + sizes) % 2**64
                    calls[function + " failed"] += failed
    return outcome, calls


def differences(first, second):
    """The functions of which two counts differ, with both numbers."""
    return {name: (first[name], second[name]) for name in sorted({*first, *second}) if first[name] != second[name]}


def check(session, name, argv, counter, env, timeout):
    """Runs a program twice natively and once recorded; adds its line of the table."""
    folder = session.folder()
    env = dict(env) | {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder), "CUPY_CACHE_DIR": str(folder)}
    # The first run fills the caches of compilers, and is not compared.
    counted(session, f"{name} first", argv, counter, env, timeout)
    native, calls = counted(session, f"{name} native", argv, counter, env, timeout)
    again, calls_again = counted(session, f"{name} again", argv, counter, env, timeout)
    recording = [session.command, "run", "--quiet", "--trace", folder / "r-%p.trace", *argv]
    own = {"GPUSHIM_LIBRARY": str(session.shim)}
    recorded, calls_recorded = counted(session, f"{name} recorded", recording, counter, {**env, **own}, timeout)
    if any(one.skipped for one in (native, again, recorded)):
        return session.result("recorded", name, "SKIP", "no time left")
    varies = differences(calls, calls_again)
    differ = {key: value for key, value in differences(calls, calls_recorded).items() if key not in varies}
    added = {key: value for key, value in differ.items() if QUERY.search(key)}
    timed = {key: value for key, value in differ.items() if TIMED.search(key) and key not in added}
    wrong = {key: value for key, value in differ.items() if key not in added and key not in timed}
    problems = []
    if native.stdout != recorded.stdout:
        problems.append("output differs: " + first_difference(native.stdout, recorded.stdout))
    if native.code != recorded.code or not native.ok:
        problems.append(f"exit codes {native.code}, {recorded.code}")
    if not sum(calls.values()):
        problems.append("no calls were counted")
    if wrong:
        problems.append("calls differ: " + ", ".join(f"{key} {one} -> {two}" for key, (one, two) in wrong.items()))
    total = sum(count for key, count in calls.items() if " " not in key)
    notes = [f"{total} calls of {sum(' ' not in key for key in calls)} functions"]
    notes += ["recording adds " + ", ".join(f"{key} {two - one:+d}" for key, (one, two) in added.items() if " " not in key)] if added else []
    notes += ["by time " + ", ".join(f"{key} {one} -> {two}" for key, (one, two) in timed.items())] if timed else []
    notes += ["varies natively: " + ", ".join(key for key in varies if " " not in key)] if varies else []
    session.result("recorded", name, "FAIL" if problems else "PASS", "; ".join(problems + notes),
                   added=added, timed=timed, wrong=wrong, varies=varies)


def run(session, built):
    """The native programs one by one, then the Python ones four at a time."""
    counter, error = library(session)
    if error or not cupti():
        return session.result("recorded", "counter", "FAIL", error or "libcupti is missing")
    for name in NATIVE[:4]:
        if name in built:
            check(session, name, [session.work / name], counter, {}, 40)
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(check, session, name, [sys.executable, GPU / program], counter, env, limit)
                for name, program, env, limit in PYTHON if "compile" not in name]
        for job in jobs:
            try:
                job.result()
            except Exception as error:
                session.result("recorded", "section", "FAIL", f"gpu-check itself: {type(error).__name__}: {error}"[:300])
