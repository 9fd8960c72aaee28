#!/usr/bin/env bash
# What default stacks cost, and what a long recording takes of the disk: docs/measurements/2026-11-24-first-minutes.md.
cd "$(dirname "$0")/../.."; export PYTHONDONTWRITEBYTECODE=1 OUT=${OUT:-out}; mkdir -p $OUT
S=$PWD/dist/libgpushim.so; G=$PWD/dist/gpushim
cat > cost.py <<'P'
import ctypes, sys, threading, time
import torch
torch.zeros(1, device="cuda")
cu = ctypes.CDLL("libcuda.so.1"); gil = ctypes.PyDLL("libcuda.so.1")
def rate(lib, n=3000):
    a, f, ad = lib.cuMemAlloc_v2, lib.cuMemFree_v2, ctypes.c_uint64(); r = ctypes.byref(ad)
    best = 1e9
    for _ in range(7):
        t = time.perf_counter()
        for _ in range(n): a(r, 4096); f(ad)
        best = min(best, (time.perf_counter() - t) / n * 1e9)
    return best
def deep(d, lib): return deep(d - 1, lib) if d else rate(lib)
def work(tag):
    torch.cuda.set_device(0); torch.zeros(1, device="cuda")
    print(sys.version.split()[0], tag, "with GIL %.0f ns, without %.0f ns a pair" % (deep(30, gil), deep(30, cu)), flush=True)
work("first thread"); t = threading.Thread(target=work, args=("other thread",)); t.start(); t.join()
P
for s in off all; do echo "stacks $s"; LD_PRELOAD=$S GPUSHIM_STACKS=$s GPUSHIM_TRACE=$PWD/c.trace timeout 40 python3 cost.py; rm -f c.trace*; done > $OUT/thread.txt 2>&1
# 3,000 steps of GPT-2 with the settings that are gpushim run's defaults at HEAD; small batches, as the events of a step do not depend on it.
( time GPUSHIM_TRACE_MODE=full GPUSHIM_SPOOL_SIZE=4G timeout 120 $G run --trace gpt2.trace -- python3 tests/gpu/gpt2.py --batch 1 --longest 128 --steps 3000 --json $OUT/gpt2.json ) > $OUT/long.out 2>&1; tail -15 $OUT/long.out > $OUT/long.txt; rm $OUT/long.out; du -ac gpt2.trace* >> $OUT/long.txt; timeout 60 $G pack gpt2.trace >> $OUT/long.txt 2>&1; du -ac gpt2.trace* >> $OUT/long.txt; timeout 60 $G report gpt2.trace* 2>&1 | head -60 > $OUT/longreport.txt; rm -f gpt2.trace*
timeout 280 python3 - > $OUT/harness.txt 2>&1 <<'P'
import sys, pathlib
sys.path.insert(0, "tests/gpu")
from harness import recorder
recorder.STEP_ROUNDS = 3
sys.argv = ["gpu-check", "--out", __import__("os").environ["OUT"] + "/check", "--budget", "272", "costs", "recorder"]
exec(compile(open("scripts/gpu-check").read(), str(pathlib.Path("scripts/gpu-check").resolve()), "exec"), {"__name__": "__main__", "__file__": str(pathlib.Path("scripts/gpu-check").resolve())})
P
tail -40 $OUT/harness.txt; cat $OUT/thread.txt $OUT/long.txt; head -40 $OUT/longreport.txt; tar czf $OUT/check.tgz -C $OUT/check . ; rm -rf $OUT/check
