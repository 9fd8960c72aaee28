"""Section `plain`: what PyTorch's stream-ordered backend cannot do works under the shim without takeover,
as natively."""

import sys

from .basics import compare
from .jobs import together
from .session import GPU

PROGRAMS = {
    # name -> program and its arguments, whether it writes figures, what its output must hold
    "torch.compile, reduce-overhead": (["torch_compile.py", "--only", "reduce-overhead"], True, "reduce-overhead weights"),
    "MemPool, memory history": (["torch_plain.py"], False, "history frames True"),
    "IPC": (["torch_ipc.py"], False, "wrong 0\nrefused 0"),
}


def run(session, built):
    """Each natively and under the shim: same output, same exit code, every driver call in the trace."""
    def check(name):
        (program, *rest), figures, needed = PROGRAMS[name]
        argv = [sys.executable, GPU / program, *rest]
        compare(session, name, argv, timeout=150, figures=figures, section="plain", needed=needed)

    together(session, "plain", {name: lambda name=name: check(name) for name in PROGRAMS})
