"""Section `torch`: training with PyTorch's own cache, and with that cache off over the shim."""

import sys

from . import machine, traces
from .bench import median
from .session import GPU

OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
MIB = 1 << 20


class Series:
    """The runs of one configuration of one workload."""

    def __init__(self, session, label, argv, *, shim=False, env=None):
        self.session, self.label, self.argv, self.shim, self.env = session, label, argv, shim, env or {}
        self.outcomes, self.peaks, self.story = [], [], None

    def once(self):
        with machine.DeviceMemory() as watch:
            outcome = self.session.run(self.label, self.argv, shim=self.shim, env=self.env, timeout=110, figures=True)
        self.peaks.append(watch.peak)
        self.outcomes.append(outcome)
        if self.shim and self.story is None and outcome.traces:
            self.story = traces.read(self.session, outcome)

    def ran(self):
        return bool(self.outcomes) and all(o.ok for o in self.outcomes)

    def step_ms(self):
        return median([o.figures.get("median_step_ms") for o in self.outcomes if o.ok])

    def losses(self):
        return {o.stdout for o in self.outcomes if o.ok}

    def figure(self, name):
        return median([o.figures.get(name) for o in self.outcomes if o.ok]) or 0

    def summary(self):
        return {
            "step_ms": self.step_ms(), "all_step_ms": [o.figures.get("median_step_ms") for o in self.outcomes],
            "max_memory_allocated": self.figure("max_memory_allocated"),
            "max_memory_reserved": self.figure("max_memory_reserved"),
            "device_peak_bytes": max(self.peaks, default=0),
            "trace": self.story.brief() if self.story else None,
        }

    def why(self):
        """Why there is no result."""
        for outcome in self.outcomes:
            if not outcome.ok:
                if outcome.skipped:
                    return "no time left"
                return f"code {outcome.code}{' (timed out)' if outcome.timed_out else ''}: {outcome.stderr.strip()[-150:]}"
        return "not run"


def alternate(series, rounds):
    """Runs the series in turn, so that drift of the machine meets all of them."""
    for _ in range(rounds):
        for one in series:
            one.once()


def missing(session, name, *series):
    """Adds a FAIL or SKIP line when a series has no result; True if so."""
    for one in series:
        if not one.ran():
            why = one.why()
            session.result("torch", name, "SKIP" if "no time" in why or why == "not run" else "FAIL", f"{one.label}: {why}")
            return True
    return False


def step_time(session, name, native, ours, limit):
    """Step time and losses of one configuration beside PyTorch's own cache."""
    if missing(session, name, native, ours):
        return
    ratio = ours.step_ms() / native.step_ms()
    same = native.losses() == ours.losses() and len(ours.losses()) == 1
    status = "PASS" if same and (limit is None or ratio <= limit) else "FAIL"
    detail = f"{ours.step_ms():.1f} ms a step, natively {native.step_ms():.1f}: {ratio:.3f} x"
    detail += "; losses equal to the bit" if same else "; LOSSES DIFFER"
    session.result("torch", name, status, detail, native=native.summary(), shim=ours.summary())


def reserved(session, name, native, ours):
    """Bytes held, by our trace and PyTorch's account; NVML's peak beside both."""
    if missing(session, name, native, ours):
        return
    theirs = native.figure("max_memory_reserved")
    held = ours.story.peak_reserved if ours.story else 0
    fine = 0 < held <= theirs
    detail = (
        f"reserves {held // MIB} MiB, PyTorch's cache {theirs // MIB} for "
        f"{native.figure('max_memory_allocated') // MIB} allocated; device in use at most "
        f"{max(ours.peaks) // MIB} against {max(native.peaks) // MIB}"
    )
    session.result("torch", name, "PASS" if fine else "FAIL", detail, native=native.summary(), shim=ours.summary())


def lens(session, native, ours):
    """PyTorch untouched, its tensors seen through the lens."""
    if missing(session, "resnet50 lens", native, ours):
        return
    outcome, story = ours.outcomes[0], ours.story
    peak, expected = (story.peak_tensors if story else 0), outcome.figures.get("max_memory_allocated")
    tensors = story.tensor_allocations if story else 0
    fine = peak == expected and tensors == outcome.figures.get("tensor_allocs") and native.losses() == ours.losses()
    detail = (
        f"tensor peak {peak}, PyTorch says {expected}; {tensors} tensors of {outcome.figures.get('tensor_allocs')}; "
        f"step {ours.step_ms():.1f} ms, natively {native.step_ms():.1f}"
    )
    session.result("torch", "resnet50 lens", "PASS" if fine else "FAIL", detail, shim=ours.summary())


def run(session, rounds=3):
    """ResNet-50, GPT-2, GPT-2 with checkpointing; the most important first."""
    resnet = [sys.executable, GPU / "resnet50.py"]
    gpt2 = [sys.executable, GPU / "gpt2.py"]
    native = Series(session, "resnet50", resnet)
    blocks = Series(session, "resnet50 cache off", resnet, shim=True, env=OFF)
    seen = Series(session, "resnet50 lens", resnet, shim=True)
    alternate([native, blocks], 1)
    seen.once()
    lens(session, native, seen)

    checkpoint = gpt2 + ["--checkpoint"]
    their_memory = Series(session, "gpt2 checkpoint", checkpoint)
    our_memory = Series(session, "gpt2 checkpoint blocks", checkpoint, shim=True, env=OFF)
    alternate([their_memory, our_memory], 1)
    reserved(session, "gpt2 checkpoint blocks, reserved", their_memory, our_memory)
    step_time(session, "gpt2 checkpoint blocks, step", their_memory, our_memory, None)

    alternate([native, blocks], rounds - 1)
    step_time(session, "resnet50 cache off, step", native, blocks, 1.1)
    their_gpt2 = Series(session, "gpt2", gpt2)
    our_gpt2 = Series(session, "gpt2 cache off", gpt2, shim=True, env=OFF)
    alternate([their_gpt2, our_gpt2], max(1, rounds - 1))
    step_time(session, "gpt2 cache off, step", their_gpt2, our_gpt2, 1.1)
    reserved(session, "gpt2 blocks, reserved", their_gpt2, our_gpt2)

    bare = Series(session, "resnet50 cache off, no shim", resnet, env=OFF)
    bare.once()
    if bare.ran() and native.ran():
        detail = f"{bare.step_ms():.1f} ms a step, with PyTorch's cache {native.step_ms():.1f}"
        session.result("torch", "resnet50 cache off, no shim", "INFO", detail, bare=bare.summary())
