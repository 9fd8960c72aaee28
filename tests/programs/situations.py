"""Training with one of the faults that users have, or without: `situations.py CASE STEPS`.

What a fault leaves behind in each step is printed as `# leaves BYTES`."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import tinytorch
from tinytorch import Adam, Linear, Pinned, Tensor, backward, mean, phase

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


def load(step, case):
    """The batch of a step; of varying length where the case wants that."""
    rows = BATCH
    if case in ("varying", "varying-leak"):
        rows = 16 + (step * 37) % 97
    return Tensor(rows * ROW)


def forward(layers, x, case):
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


def train(case, steps):
    kind = {"leaky-layer": Leaky, "varying-leak": Leaky, "cache": Cached}
    layers = [Linear(WIDTH) for _ in range(LAYERS - 1)] + [kind.get(case, Linear)(WIDTH)]
    optimizer = Adam(layers)
    losses, pinned, last = [], [], None
    for step in range(steps):
        x = load(step, case)
        with phase("forward"):
            loss = forward(layers, x, case)
        if case == "losses":
            losses.append(loss)
            keep = Tensor(512, loss)  # as an extra term of the loss would
            loss.extra, loss.kept = keep, loss.sources
        if case == "last-output":
            last = loss
        if case == "pinned":
            pinned.append(Pinned(3 << 20))
        with phase("backward"):
            backward(loss, layers)
        if case != "accumulate" or step % 4 == 3:
            with phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        if case == "evaluation" and step % 10 == 9:
            evaluate(layers, case)
        if case == "restart" and step == steps // 2:
            layers, optimizer = None, None
            layers = [Linear(WIDTH) for _ in range(LAYERS)]
            optimizer = Adam(layers)
        del x, loss
    return last


LEAVES = {"leaky-layer": BATCH * ROW, "pinned": 3 << 20}


def main():
    case, steps = sys.argv[1], int(sys.argv[2])
    print(f"# leaves {LEAVES.get(case, 0)}")
    tinytorch.start()
    try:
        train(case, steps)
    except tinytorch.OutOfMemoryError:
        print("out of memory")


main()
