"""Section `libraries`: PyTorch under takeover, CuPy and JAX in one process hold no more than the largest of them
needs by itself, where both families of calls are served from one pool."""

import json
import subprocess
import sys

from .configurations import Configuration, missing
from .session import GPU

PHASES = ("torch", "cupy", "jax")
SPARE = 1.05
"""What all three may hold, as a multiple of what the largest of them does alone."""


def configuration(policy):
    """The three libraries under one policy."""
    return Configuration(policy, {"GPUSHIM_TAKEOVER": "torch", "GPUSHIM_POLICY": policy}, True)


def run(session, built):
    """Under `vmm`, where it is required, and under `auto`, where it is only reported."""
    for policy in ("vmm", "auto"):
        held = {}
        for phases in (*PHASES, ",".join(PHASES)):
            argv = [sys.executable, GPU / "three_libraries.py", "--phases", phases]
            outcome = configuration(policy).run(session, f"three libraries, {phases}", argv, timeout=150)
            if missing(session, "libraries", f"{policy}, {phases}", [(policy, outcome)]):
                return
            held[phases] = peak_reserved(session, outcome)
        *alone, together = held.values()
        ratio = together / max(alone)
        detail = ", ".join(f"{name} {bytes / 2**20:,.0f} MiB" for name, bytes in held.items())
        verdict = "FAIL" if policy == "vmm" and ratio > SPARE else "PASS"
        session.result("libraries", policy, verdict, f"{detail}; together {ratio:.3f} of the largest alone", held=held)


def peak_reserved(session, outcome):
    """The most bytes that device 0 was held for, by the process that held most."""
    peaks = []
    for path in outcome.traces:
        command = [session.command, "report", "--format", "json", path]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        devices = json.loads(printed)["results"][0]["summary"]["devices"]
        peaks += [device["reserved"]["peak"] for device in devices if device["device"] == 0]
    return max(peaks)
