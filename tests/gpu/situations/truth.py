"""What a program of this folder plants, for whoever checks what gpushim makes of it."""

import json


def tell(**truth):
    """The last line of output: what was planted, by which function, and PyTorch's own figures."""
    print(json.dumps(truth), flush=True)
