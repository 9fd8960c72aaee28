#!/usr/bin/env python3
"""PyTorch's own allocator on elastic segments (GPUSHIM_ELASTIC), beside itself and beside expandable segments.

Each workload runs natively first; its peak of allocated bytes, times `--share`, is the limit under which it then runs in
each way. Losses and weights must be those of the native run. Then programs that use what an allocator has to
get right: graphs, streams, errors, pools. Prints a line for each run; exit code 1 if an elastic one went wrong.

  python3 tests/gpu/torch_elastic.py --library dist/libgpushim.so --gpushim dist/gpushim
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.rounds import typical_step

GPU = Path(__file__).resolve().parent
CONF = "PYTORCH_CUDA_ALLOC_CONF"
MIB = 1 << 20
WARM_UP = 10
"""Steps of a workload that do not count: its default."""
WORKLOADS = {
    "gpt2": ["gpt2.py"],
    "gpt2-checkpoint": ["gpt2.py", "--checkpoint"],
    "vit": ["vit.py"],
    "resnet50": ["resnet50.py"],
    "generate": ["generate.py"],
}
LAUNCH_BOUND = {
    "gpt2-launches": ["gpt2.py", "--fast", "--batch", "4", "--longest", "257"],
    "resnet50-launches": ["resnet50.py", "--fast", "--batch", "16"],
}
"""Workloads whose steps wait for the processor, and whose results differ from run to run: for `--later`."""
PROGRAMS = {
    "features": ["torch_elastic_features.py"],
    "graphs replayed": ["torch_replays.py"],
    "graph of a step": ["torch_graph.py"],
    "reduce-overhead": ["torch_compile.py", "--only", "reduce-overhead", "--steps", "1000", "--churn"],
}
WAYS = {
    # name -> environment; under the limit, too, and without
    "native": {},
    "expandable": {CONF: "expandable_segments:True"},
    "elastic auto": {"GPUSHIM_ELASTIC": "auto"},
    "elastic on": {"GPUSHIM_ELASTIC": "on"},
    "elastic auto on segments": {CONF: "expandable_segments:False", "GPUSHIM_ELASTIC": "auto"},
}
PLAIN = {"GPUSHIM_POLICY": "off"}
"""The shim without a pool of its own: for the limit, and to see what is held."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libgpushim.so")
    parser.add_argument("--gpushim", required=True, help="the command")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--share", type=float, default=1.05, help="the limit, by the native peak of allocated bytes")
    parser.add_argument("--rounds", type=int, default=0,
                        help="compare: so many rounds of the native run, of one with the recorder alone, of `auto` without and under the limit, of `on`")
    parser.add_argument("--later", type=int, default=0,
                        help="time of announcements in so many more steps alone: each way in two lengths, with and without stacks")
    parser.add_argument("--limit-only", action="store_true", help="do not run the ways without the limit, too")
    parser.add_argument("--others", action="store_true",
                        help="the limit is beside what other libraries in the process hold (cuBLAS, cuDNN): one more run")
    parser.add_argument("--timeout", type=int, default=200, help="seconds for one run")
    return parser.parse_args()


class Run:
    """One process: how it ended, what it printed, its own figures, and what it held of the device."""

    def __init__(self, options, argv, environment, shim=True):
        with tempfile.TemporaryDirectory() as folder:
            figures, trace = Path(folder, "figures.json"), Path(folder, "run.trace")
            env = os.environ | environment
            if shim:
                library = Path(options.library).resolve()
                env |= {"LD_PRELOAD": str(library), "GPUSHIM_TRACE": str(trace)}
            command = [sys.executable, GPU / argv[0], *argv[1:], "--json", figures]
            try:
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=options.timeout)
                self.code, self.stdout, stderr = done.returncode, done.stdout, done.stderr
            except subprocess.TimeoutExpired:
                self.code, self.stdout, stderr = "timeout", "", ""
            self.figures = json.loads(figures.read_text()) if figures.is_file() else {}
            lines = stderr.splitlines()
            self.said = [line for line in lines if line.startswith("gpushim")]
            self.error = next((line for line in reversed(lines) if "Error" in line), "")
            self.held, facts = seen(options, trace) if trace.is_file() else (0, [])
            self.said += facts

    def line(self, like):
        """For a person: how it ended, and its figures."""
        if self.code != 0:
            ended = f"FAILED, code {self.code}: {self.error[:110]}"
        elif self.stdout != like.stdout:
            ended = "DIFFERS from the native run"
        else:
            ended = "ended, equal"
        get = self.figures.get
        memory = "allocated {:.0f}, PyTorch reserved {:.0f}, held {:.0f} MiB".format(
            get("max_memory_allocated", 0) / MIB, get("max_memory_reserved", 0) / MIB, self.held / MIB)
        step = f"step {get('median_step_ms', 0):.1f} ms, first {get('first_step_ms', 0):.0f} ms"
        return "; ".join([ended, step, memory, *self.said])


def seen(options, trace):
    """By the trace: bytes that the process held of a device at most, and what it says of elastic segments."""
    report = subprocess.run([options.gpushim, "report", "--format", "json", trace], capture_output=True, text=True)
    try:
        result = json.loads(report.stdout)["results"][0]
        held = max((device["reserved"]["peak"] for device in result["summary"]["devices"]), default=0)
        return held, [f"{key}: {value}" for key, value in result["facts"] if ".elastic" in key or key == "torch.announcements"]
    except (ValueError, KeyError, IndexError, TypeError):
        return 0, []


def is_right(run, like):
    return run.code == 0 and run.stdout == like.stdout


def workload(options, name):
    """Whether all elastic runs of a workload ended with the native results."""
    argv = [*WORKLOADS[name], "--steps", str(options.steps)]
    like = Run(options, argv, {}, shim=False)
    print(f"{name}, natively: {like.line(like)}", flush=True)
    if like.code != 0:
        return False
    limit = int(like.figures["max_memory_allocated"] * options.share)
    if options.others:
        run = Run(options, argv, PLAIN)
        others = run.held - run.figures.get("max_memory_reserved", run.held)
        print(f"{name}: other libraries hold {others / MIB:.0f} MiB", flush=True)
        limit += others
    fine = True
    for way in options.ways.split(","):
        capped = {"GPUSHIM_LIMIT": str(limit)}
        for cap in (capped,) if options.limit_only else ({}, capped):
            run = Run(options, argv, PLAIN | WAYS[way] | cap)
            under = f"limit {limit / MIB:.0f} MiB" if cap else "no limit"
            print(f"{name}, {way}, {under}: {run.line(like)}", flush=True)
            fine &= is_right(run, like) or not way.startswith("elastic")
    return fine


def rounds(options, name):
    """Step times of a workload, by turns, by the fastest round of each step. Whether all results were the native ones."""
    argv = [*WORKLOADS[name], "--steps", str(options.steps)]
    ways = {"natively": None, "recorder": {}, "auto, no limit": WAYS["elastic auto"], "auto, limit": WAYS["elastic auto"],
            "on": WAYS["elastic on"]}
    runs = {way: [] for way in ways}
    fine = True
    for _ in range(options.rounds):
        for way, environment in ways.items():
            if way == "natively":
                run = Run(options, argv, {}, shim=False)
            else:
                limit = int(runs["natively"][0].figures.get("max_memory_allocated", 0) * options.share)
                cap = {"GPUSHIM_LIMIT": str(limit)} if way == "auto, limit" else {}
                run = Run(options, argv, PLAIN | environment | cap)
            runs[way].append(run)
            fine &= is_right(run, runs["natively"][0])
    whole = {way: [run.figures["steps_ms"] for run in of if run.code == 0] for way, of in runs.items()}
    steps = {way: typical_step(times, WARM_UP) for way, times in whole.items()}
    native = steps["natively"]
    if not native:
        print(f"{name}: no native run ended", flush=True)
        return False
    for way, of in runs.items():
        step, like = steps[way], runs["natively"][0]
        times = ", ".join(f"{run.figures.get('median_step_ms', 0):.1f}" for run in of)
        print(f"{name}, {way}: step {step:.1f} ms, {step / native:.3f} of native ({len(whole[way])} rounds, their medians: {times}); "
              f"last: {of[-1].line(like)}", flush=True)
    return fine


def announced(run):
    """Number of announcements of a run, and the time that the library spent in them, in ns."""
    said = (re.match(r"torch\.announcements: (\d+), (\d+) ns each", line) for line in run.said)
    count, each = next(([int(number) for number in found.groups()] for found in said if found), (0, 0))
    return count, count * each


def later(options, name):
    """Time of announcements in later steps alone: a run of more steps less one of `--steps`. Whether all runs ended."""
    fine = True
    for way in options.ways.split(","):
        for stacks in ("all", "off"):
            environment = PLAIN | WAYS[way] | {"GPUSHIM_STACKS": stacks}
            lengths = (options.steps, options.steps + options.later)
            argv = [*(WORKLOADS | LAUNCH_BOUND)[name], "--steps"]
            short, long = (Run(options, [*argv, str(length)], environment) for length in lengths)
            if short.code != 0 or long.code != 0:
                print(f"{name}, {way}, stacks {stacks}: FAILED, {short.error or long.error}", flush=True)
                fine = False
                continue
            (few, first), (many, whole) = announced(short), announced(long)
            each, step = (whole - first) / max(many - few, 1), long.figures["median_step_ms"]
            share = (whole - first) / options.later / (step * 1e4)
            print(f"{name}, {way}, stacks {stacks}: the first {few} announcements {first / max(few, 1):.0f} ns each, "
                  f"the next {many - few} {each:.0f} ns, {share:.2f} % of a median step of {step:.1f} ms", flush=True)
    return fine


def program(options, name):
    """Whether a program prints the same on elastic segments as natively."""
    like = Run(options, PROGRAMS[name], {}, shim=False)
    fine = like.code == 0
    print(f"{name}, natively: {like.line(like)}", flush=True)
    for way in (way for way in WAYS if way.startswith("elastic")):
        run = Run(options, PROGRAMS[name], PLAIN | WAYS[way])
        print(f"{name}, {way}: {run.line(like)}", flush=True)
        fine &= is_right(run, like)
        if run.code == 0 and run.stdout != like.stdout:
            pairs = zip(like.stdout.splitlines(), run.stdout.splitlines())
            print("  first difference:", next((pair for pair in pairs if pair[0] != pair[1]), "one is longer"))
    return fine


def main():
    options = arguments()
    each = later if options.later else rounds if options.rounds else workload
    results = [each(options, name) for name in options.workloads.split(",") if name]
    results += [program(options, name) for name in options.programs.split(",") if name]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
