"""Holds memory and lets a command look at this process: `looked_at.py COMMAND…`, where PID stands for its id."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import tinytorch
from tinytorch import Tensor


def hold():
    return [Tensor(1 << 20) for _ in range(3)]


def main():
    tinytorch.start()
    held, short = hold(), Tensor(4 << 20)
    del short
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("GPUSHIM_")}
    command = [str(os.getpid()) if word == "PID" else word for word in sys.argv[1:]]
    code = subprocess.run(command, env=environment).returncode
    del held
    sys.exit(code)


main()
