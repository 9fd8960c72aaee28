"""Scores a long signal with an LSTM, window after window; the state goes on from each window to the next."""
import argparse

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.rnn = nn.LSTM(channels, hidden, num_layers=2)
        self.readout = nn.Linear(hidden, channels)

    def forward(self, window, state=None):
        out, state = self.rnn(window, state)
        return self.readout(out), state


def signal(windows, length, batch, channels):
    """Yields windows of (time, batch, channel)."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    for _ in range(windows):
        yield torch.randn(length, batch, channels, device="cuda", generator=generator)


def score(model, stream, trace):
    model.eval()
    state = None
    errors = []
    window = next(stream, None)
    while window is not None:
        forecast, state = model(window, state)
        error = (forecast[:-1] - window[1:]).square().mean()
        errors.append(error.item())
        del forecast, error
        trace.append(torch.cuda.memory_allocated())
        window = next(stream, None)
    return sum(errors) / len(errors)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=512)
    return parser.parse_args()


def main():
    options = parse()
    model = Forecaster(options.channels, options.hidden).cuda()
    trace = []
    error = score(model, signal(options.windows, options.length, options.batch, options.channels), trace)
    print(f"mean squared error: {error:.4f}")
    half = len(trace) // 2
    rate = (trace[-1] - trace[half]) // (len(trace) - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


if __name__ == "__main__":
    main()
