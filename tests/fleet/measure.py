#!/usr/bin/env python3
"""Measures `gpushim report` on a made-up job: its traces, its summaries, and 10,000 summaries.

    tests/fleet/measure.py [--built target/debug] [--work DIR]

DIR has the job afterwards. Prints seconds, seconds of processor time and the most memory, the best of three runs.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


def run(*words):
    """Wall clock, processor time (s), and most memory (MiB) of a command."""
    begin = time.time()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    return time.time() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measured(what, *words):
    """Prints the best of three runs."""
    wall, processor, memory = min(run(*words) for _ in range(3))
    print(f"{what}: {wall:.2f} s, {processor:.2f} s of a processor, {memory:.0f} MiB", flush=True)


def attached_summary(path):
    """The summary attached to a trace, where it is all that is attached: docs/trace-format.md."""
    content = path.read_bytes()
    length = int.from_bytes(content[-32:-24], "little")
    return content[-48 - length : -48]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--built", type=pathlib.Path, default=pathlib.Path("target/debug"))
    parser.add_argument("--work", type=pathlib.Path)
    options = parser.parse_args()
    work = options.work or pathlib.Path(tempfile.mkdtemp())
    gpushim, job, summaries, many = options.built / "gpushim", work / "job", work / "summaries", work / "many"
    for folder in (job, summaries, many):
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([options.built / "examples" / "fleet_ranks", job, "512", "24", "600"], check=True, stdout=subprocess.DEVNULL)
    measured("512 ranks, 24 faults, from their traces", gpushim, "report", job)
    subprocess.run([gpushim, "report", "--keep", job], stdout=subprocess.DEVNULL)
    measured("from their summaries, traces of outliers opened", gpushim, "report", job)
    summaries.mkdir()
    many.mkdir()
    texts = [attached_summary(file) for file in sorted(job.glob("*.trace"))]
    sizes = [len(text) for text in texts]
    print(f"a summary: {sum(sizes) // len(sizes)} bytes, at most {max(sizes)}")
    for rank, text in enumerate(texts):
        (summaries / f"{rank}.trace.summary").write_bytes(text)
    measured("from their summaries alone", gpushim, "report", summaries)
    for rank in range(10_000):
        summary = json.loads(texts[rank % len(texts)])
        summary["process"] |= {"rank": rank, "world": 10_000, "host": f"node{rank // 8:04}"}
        (many / f"{rank}.trace.summary").write_text(json.dumps(summary))
    measured("10,000 summaries", gpushim, "report", many)


main()
