"""Training with one of the faults that users have, or without: `situations.py CASE [STEPS]`.

Without STEPS, as `gpushim demo` starts it, it trains for 30 steps of 20 ms. With STEPS it does not wait, and prints what a
fault leaves behind in each step as `# leaves BYTES`, and what it loses at once as `# loses BYTES`."""

import os
import sys
import time

# `pip uninstall` removes what pip has installed, and no file that Python writes beside it.
sys.dont_write_bytecode = True
# Of the simulated GPU, unless the user says otherwise.
os.environ.setdefault("STANDIN_MEMORY", "512M")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import tinytorch
from tinytorch import Adam, Linear, Pinned, Tensor, backward, mean, part, phase

STEPS, STEP_S = 30, 0.02
WIDTH, LAYERS, BATCH = 512, 4, int(os.environ.get("BATCH", "512"))
ROW = WIDTH * 4


class Leaky(Linear):
    """Keeps what it was given, for ever."""

    def __init__(self, width):
        super().__init__(width)
        self.seen = []

    def forward(self, x):
        self.seen.append(copy(x))
        return super().forward(x)


def copy(x):
    return Tensor(x.size)


class Cached(Linear):
    """Keeps what it was given the first ten times: a cache that fills."""

    def __init__(self, width):
        super().__init__(width)
        self.seen = []

    def forward(self, x):
        if len(self.seen) < 10:
            self.seen.append(x.detach())
        return super().forward(x)


class Bank:
    """Samples kept from steps before."""

    def __init__(self):
        self.samples = [sample(3 << 20) for _ in range(8)]


def sample(size):
    return Tensor(size)


def scatter():
    """Small tensors stay between large ones that go; then none of the gaps is large enough."""
    large, kept = [], []
    for _ in range(12):
        large.append(Tensor(9 << 20))
        kept.append(sample(3 << 19))
        large.append(Tensor(9 << 20))
    del large
    return kept, Tensor(64 << 20)


class Average:
    """A copy of the weights."""

    def __init__(self, layers):
        self.means = [layer.weight.detach() for layer in layers]


def load_teacher():
    return [Linear(2 * WIDTH) for _ in range(4)]


def load(step, case):
    """The batch of a step; of varying length, or a quarter, where the case wants that."""
    rows = BATCH // 4 if case == "quarters" else BATCH
    if case in ("varying", "varying-leak"):
        rows = 16 + (step * 37) % 97
    return Tensor(rows * ROW)


def forward(layers, x, case):
    if case == "half":  # as mixed precision: of half as many bytes from now on
        x = Tensor(x.size // 2)
    for number, layer in enumerate(layers):
        y = layer(x)
        if case == "checkpoint" and number % 2:
            y.sources = ()
        x = y
    return mean(x)


def evaluate(layers, case):
    x = load(0, case)
    for layer in layers:
        x = layer(x).detach()


def train(case, steps, step_s):
    kind = {"leaky-layer": Leaky, "varying-leak": Leaky, "cache": Cached}
    layers = [Linear(WIDTH) for _ in range(LAYERS - 1)] + [kind.get(case, Linear)(WIDTH)]
    optimizer = Adam(layers)
    average = Average(layers) if case == "average" else None
    teacher = load_teacher() if case == "drop" else None
    losses, pinned, last = [], [], None
    bank = Bank() if case == "bank" else None
    scattered = scatter() if case == "scattered" else None
    for step in range(steps):
        time.sleep(step_s)
        if teacher and step == steps // 2:
            with phase("end of distillation"):
                teacher = None
        x = load(step, case)
        with part("forward"):
            loss = forward(layers, x, case)
        if case == "losses":
            losses.append(loss)
            # As an extra term of the loss would.
            loss.extra, loss.kept = Tensor(512), loss.sources
        if case == "last-output":
            last = loss
        if case == "pinned":
            pinned.append(Pinned(3 << 20))
        with part("backward"):
            backward(loss, layers)
        if case not in ("accumulate", "quarters") or step % 4 == 3:
            with part("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        if case == "evaluation" and step % 10 == 9:
            evaluate(layers, case)
        if case == "restart" and step == steps // 2:
            layers, optimizer = None, None
            layers = [Linear(WIDTH) for _ in range(LAYERS)]
            optimizer = Adam(layers)
        del x, loss
        if case == "bank" and step == steps // 2:
            bank = None
        if case == "reset" and step == steps // 2:
            tinytorch.reset()
            layers = [Linear(WIDTH) for _ in range(LAYERS)]
            optimizer = Adam(layers)
    return last, bank, scattered, average


def load_features():
    return Tensor(4 << 20), Tensor(16 << 20)


def references():
    """What is deleted stays: another name refers to it."""
    tensor1, tensor2 = load_features()
    shown = [tensor1, tensor2]
    with phase("del"):
        del tensor1, tensor2
    with phase("clear"):
        shown.clear()


def activations():
    """One step, phase by phase; the sizes of the layers are those of an article on activations."""
    with phase("inputs"):
        x, _ = Tensor(512), Tensor(4096)
    with phase("model"):
        weights = [Tensor(size) for size in (4096, 1536, 360448, 1536, 480256, 2048, 480256, 1536, 120320, 512)]
    with phase("forward"):
        for size in (12288, 12288, 16384, 12288, 4096):
            x = Tensor(size, x)
    with phase("backward"):
        gradients = []
        for weight in reversed(weights):
            gradients.append(Tensor(weight.size))
            x = x.sources[0] if x.sources else x
    del gradients


# What is no training.
SCRIPTS = {"references": references, "activations": activations}
LEAVES = {"leaky-layer": BATCH * ROW, "pinned": 3 << 20}
# What goes at once and does not come back: samples; weights and the optimizer's state.
LOSES = {"bank": 24 << 20, "reset": 3 * LAYERS * WIDTH * ROW}


def main():
    case, steps, step_s = sys.argv[1], STEPS, STEP_S
    if sys.argv[2:]:
        steps, step_s = int(sys.argv[2]), 0
        for what, sizes in (("leaves", LEAVES), ("loses", LOSES)):
            print(f"# {what} {sizes.get(case, 0)}")
    tinytorch.start()
    try:
        SCRIPTS[case]() if case in SCRIPTS else train(case, steps, step_s)
    except tinytorch.OutOfMemoryError:
        print("out of memory")


main()
