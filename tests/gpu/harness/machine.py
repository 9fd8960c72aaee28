"""The machine: what it is, the toolkit, the programs built on it, its memory in use."""

import ctypes
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .session import GPU, ROOT


def toolkit():
    """The CUDA toolkit's folder, or None."""
    nvcc = shutil.which("nvcc")
    if nvcc:
        return pathlib.Path(os.path.realpath(nvcc)).parents[1]
    for folder in ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]:
        if os.path.exists(f"{folder}/bin/nvcc"):
            return pathlib.Path(folder)
    return None


def device():
    """The GPU's name and the version of PyTorch, for people: `one NVIDIA H100, PyTorch 2.11.0`."""
    asked = (
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        [sys.executable, "-c", "import torch; print('PyTorch', torch.__version__.split('+')[0])"],
    )
    said = []
    for argv in asked:
        try:
            said += subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout.splitlines()[:1]
        except (OSError, subprocess.SubprocessError):
            pass
    return ", ".join(["one " + said[0], *said[1:]]) if said else "a GPU"


def describe(session):
    """Logs what the results depend on; returns it in one line."""
    lines = []
    for argv in (
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
        ["uname", "-r"],
        ["nproc"],
        [sys.executable, "-c", "import torch; print('torch', torch.__version__)"],
    ):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=90, env=os.environ | session.bytecode)
            lines.append((done.stdout.strip() or done.stderr.strip()[-200:]).replace("\n", " "))
        except (OSError, subprocess.SubprocessError) as error:
            lines.append(f"{argv[0]}: {error}")
    text = " | ".join(lines)
    session.log(f"machine: {text}")
    return text


def programs(session):
    """Name -> command that builds it into the work folder; what cannot be built here is left out."""
    work, cuda = session.work, toolkit()
    warn = ["-O2", "-Wall"]
    built = {
        "libcounter.so": ["gcc", *warn, "-shared", "-fPIC", GPU / "counter.c", "-o", work / "libcounter.so", "-ldl"],
        "bench_driver": ["gcc", *warn, GPU / "bench_pair.c", "-o", work / "bench_driver", "-ldl", "-lpthread"],
        "async_pair": ["gcc", *warn, GPU / "async_pair.c", "-o", work / "async_pair", "-ldl", "-lm", "-lpthread"],
    }
    sources = sorted((ROOT / "tests" / "conformance").glob("*.c"))
    if sources:
        built["conformance"] = ["gcc", "-O1", *sources, "-o", work / "conformance", "-ldl", "-pthread"]
    if cuda:
        nvcc = cuda / "bin" / "nvcc"
        target = ["-arch=native", "-O2", "-std=c++17"]
        for source in ("alloc_static", "stress", "ipc"):
            for kind in ("static", "shared"):
                name = f"{source}_{kind}"
                built[name] = [nvcc, *target, "-cudart", kind, GPU / f"{source}.cu", "-o", work / name, "-Xlinker", f"-rpath={cuda}/lib64"]
        for source in ("async_small", "async_stress"):
            built[source] = [nvcc, *target, "-cudart", "shared", GPU / f"{source}.cu", "-o", work / source, "-Xlinker", f"-rpath={cuda}/lib64"]
        folders = [f"-L{cuda}/lib64", f"-L{cuda}/targets/x86_64-linux/lib", f"-Wl,-rpath,{cuda}/lib64"]
        for kind, libraries in (("static", ["-lcudart_static", "-lrt"]), ("shared", ["-lcudart"])):
            name = f"bench_{kind}"
            source = ["gcc", *warn, "-DRUNTIME", GPU / "bench_pair.c", "-o", work / name]
            built[name] = [*source, *folders, *libraries, "-ldl", "-lpthread", "-lstdc++"]
    return built


def build(session, wanted):
    """Builds the programs whose names begin with one of `wanted`, several at a time; returns the names of
    those that exist now."""
    todo = {name: command for name, command in programs(session).items() if name.startswith(wanted)}

    def one(item):
        name, command = item
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=150)
        except (OSError, subprocess.SubprocessError) as error:
            return name, str(error)
        return name, "" if done.returncode == 0 else done.stderr[-1500:] or f"exit code {done.returncode}"

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 2)) as pool:
        outcome = list(pool.map(one, todo.items()))
    for name, problem in outcome:
        if problem:
            session.log(f"build of {name}: {problem}")
            session.result("build", name, "FAIL", problem.strip().splitlines()[-1][:200])
    good = {name for name, problem in outcome if not problem}
    session.log(f"built {sorted(good)}")
    return good


class DeviceMemory:
    """Watches the device's used bytes through NVML, a witness that the shim cannot reach.

    `with DeviceMemory() as watch: …; watch.peak` is the highest use above that at the start."""

    def __init__(self):
        self.peak, self.base, self.stopped = 0, 0, threading.Event()
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
                self.nvml = None
        except (OSError, AttributeError):
            self.nvml = None
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def used(self):
        """Bytes in use on device 0 by all processes; 0 when unknown."""
        memory = (ctypes.c_uint64 * 3)()
        if self.nvml is None or self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)):
            return 0
        return memory[2]

    def watch(self):
        while not self.stopped.wait(0.02):
            self.peak = max(self.peak, self.used() - self.base)

    def __enter__(self):
        # The process before may still be giving its memory back.
        time.sleep(0.3)
        self.base = self.used()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join(1)
