"""The step of a program that ran several times on a machine that others use, too."""

import statistics


def typical_step(rounds, warm_up):
    """The mean over the counted steps of each step's fastest time, ms; 0 without rounds.

    Step k does the same work in every round. What disturbs a round makes its steps slower, never faster: the fastest time
    of a step is the one that was disturbed least, and its median over three rounds is still disturbed now and then."""
    steps = list(zip(*(times[warm_up:] for times in rounds)))
    return statistics.fmean(min(times) for times in steps) if steps else 0
