"""The step of a program that ran several times on a machine that others use, too."""

import statistics


def typical_step(rounds, warm_up):
    """The mean over the counted steps of each step's fastest time, ms; 0 without rounds.

    Step k does the same work in every round, and what else runs on the machine makes it slower, never faster. The fastest of
    its times is the one that was disturbed least. A stall of our own that comes at another step in each round is left out, too: the
    median of each round is to be looked at beside it."""
    steps = list(zip(*(times[warm_up:] for times in rounds)))
    return statistics.fmean(min(times) for times in steps) if steps else 0
