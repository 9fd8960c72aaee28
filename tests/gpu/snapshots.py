#!/usr/bin/env python3
"""Memory snapshots of PyTorch, each of a program that asks something else of its allocator, and what PyTorch itself
says that it held: to check `gpushim replay --policy torch` against.

    tests/gpu/snapshots.py DIR [NAME …]

Writes DIR/NAME.pickle, and DIR/truth.json: for each the most bytes that were reserved while the history was recorded,
and the options of the allocator. Needs PyTorch and one GPU with 8 GiB; each program is a process of its own and takes
some seconds.
"""

import json
import os
import pathlib
import pickle
import subprocess
import sys

MIB = 1 << 20
GIB = 1 << 30


def begin(entries=100_000):
    """The history begins here, and so does the peak."""
    import torch

    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=entries)


def model(width=512, layers=6):
    import torch

    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers).cuda(), width


def lengths(count, least, most, seed=1):
    import random

    source = random.Random(seed)
    return [source.randrange(least, most) for _ in range(count)]


def train(steps, batch=8, least=32, most=512, each=None):
    """A transformer under Adam with sequences of varying length; `each` is called after every step."""
    import torch

    net, width = model()
    adam = torch.optim.Adam(net.parameters(), foreach=False)
    for step, length in enumerate(lengths(steps, least, most)):
        x = torch.randn(batch, length, width, device="cuda")
        loss = net(x).square().mean()
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        if each:
            each(step)


def transformer():
    """From the first allocation on."""
    begin()
    train(8)


def late():
    """A history that begins in the middle: blocks, and segments with free blocks in them, are there."""
    train(5, each=lambda step: begin() if step == 2 else None)


def convolutions():
    """Images of varying size."""
    import torch

    begin()
    torch.backends.cudnn.benchmark = True
    widths = [3, 64, 128, 256, 256]
    parts = []
    for a, b in zip(widths, widths[1:]):
        parts += [torch.nn.Conv2d(a, b, 3, stride=2, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU()]
    net = torch.nn.Sequential(*parts, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for size in lengths(12, 96, 384, seed=7):
        net(torch.randn(32, 3, size, size, device="cuda")).square().mean().backward()
        sgd.step()
        sgd.zero_grad()


def inference():
    """A history whose beginning was overwritten."""
    import torch

    net, width = model()
    net.eval()
    begin(entries=3000)
    cache = []
    with torch.no_grad():
        for at, length in enumerate(lengths(40, 16, 1024, seed=3)):
            cache.append(net(torch.randn(4, length, width, device="cuda")))
            if at % 7 == 6:
                del cache[::2]


def streams():
    """Side streams that use blocks of others: what they use comes back when they are done."""
    import torch

    begin()
    side = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    for at, size in enumerate(lengths(120, 1, 40 * MIB, seed=5)):
        x = torch.empty(size, dtype=torch.uint8, device="cuda")
        stream = side[at % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            y = x.clone()
            x.record_stream(stream)
        del x
        kept.append(y)
        if at % 5 == 4:
            kept[:] = kept[-3:]
        if at == 70:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def emptied():
    """empty_cache between steps."""
    import torch

    begin()
    train(8, each=lambda step: torch.cuda.empty_cache() if step in (2, 5) else None)


def limited():
    """A limit: cached memory goes back, and the request is tried again."""
    import torch

    torch.cuda.set_per_process_memory_fraction(1.5 * GIB / torch.cuda.get_device_properties(0).total_memory)
    begin()
    try:
        train(16, least=64, most=500)
        blocks = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (30, 50, 70, 90, 110, 130)]
        del blocks[::2]
        blocks.append(torch.empty(900 * MIB, dtype=torch.uint8, device="cuda"))
        blocks.append(torch.empty(900 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass


def graph():
    """CUDA graphs: pools of their own, one of which ends."""
    import torch

    begin()
    net, width = model(layers=3)
    net.eval()
    kept = []
    with torch.no_grad():
        for length in (64, 256, 128):
            x = torch.randn(8, length, width, device="cuda")
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                net(x)
            torch.cuda.current_stream().wait_stream(stream)
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                y = net(x)
            captured.replay()
            kept.append((captured, x, y))
        kept[0][0].reset()
        del kept[0]
        torch.cuda.empty_cache()
        net(torch.randn(8, 300, width, device="cuda"))
    torch.cuda.synchronize()


def mempool():
    """A pool of the program's own."""
    import torch

    begin()
    pool = torch.cuda.MemPool()
    kept = [torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")]
    with torch.cuda.use_mem_pool(pool):
        for size in lengths(60, 1, 24 * MIB, seed=9):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if len(kept) > 9:
                del kept[1::2]
    train(2)


CASES = {
    # name -> program, options of the allocator
    "transformer": (transformer, ""),
    "late": (late, ""),
    "convolutions": (convolutions, ""),
    "inference": (inference, ""),
    "streams": (streams, ""),
    "emptied": (emptied, ""),
    "limited": (limited, ""),
    "graph": (graph, ""),
    "mempool": (mempool, ""),
    "expandable": (emptied, "expandable_segments:True"),
    "expandable-late": (late, "expandable_segments:True"),
    "expandable-limited": (limited, "expandable_segments:True"),
    "expandable-streams": (streams, "expandable_segments:True"),
    "options": (limited, "max_split_size_mb:64,roundup_power2_divisions:4"),
    "collected": (limited, "garbage_collection_threshold:0.6"),
}


def child(folder, name):
    import torch

    program, options = CASES[name]
    program()
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    with open(folder / f"{name}.pickle", "wb") as file:
        pickle.dump(snapshot, file)
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "memory_reserved": torch.cuda.memory_reserved(),
        "entries": sum(map(len, snapshot["device_traces"])),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "options": options,
        "total": total,
        "torch": torch.__version__,
    }))


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for name in sys.argv[2:] or CASES:
        env = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": CASES[name][1], "PYTORCH_ALLOC_CONF": CASES[name][1]}
        argv = [sys.executable, __file__, str(folder), "--child", name]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{name}: exit code {done.returncode}\n{done.stderr[-1500:]}", file=sys.stderr)
            continue
        truth[name] = json.loads(done.stdout.strip().splitlines()[-1])
        print(name, truth[name], flush=True)
        (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return 0 if truth else 1


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(2)
    if sys.argv[2:3] == ["--child"]:
        child(pathlib.Path(sys.argv[1]), sys.argv[3])
    else:
        sys.exit(main())
