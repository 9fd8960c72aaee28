"""CuPy with its pool off, as a library of tables uses memory: columns of random lengths come, are filtered, sorted and joined
end to end, and go. Sums on stdout, step times in `--json`."""

import random
import time

from common import arguments, emit, median, write_figures

import cupy

options = arguments(steps=40, warmup=5, rows=4_000_000, columns=6, kept=8)
cupy.cuda.set_allocator(None)
mixed = random.Random(9)


def column(rows, seed):
    """Some numbers, each time the same."""
    return (cupy.arange(rows, dtype=cupy.int64) * (2 * seed + 1)) % 1_000_003


def step(number, tables):
    """One table comes, is filtered and sorted; some tables of before are joined to it, one goes."""
    rows = mixed.randrange(options.rows // 16, options.rows)
    table = [column(rows, number + at) for at in range(options.columns)]
    wanted = table[0] % mixed.randrange(2, 7) != 0
    table = [one[wanted] for one in table]
    order = cupy.argsort(table[1])
    table = [one[order] for one in table]
    if tables:
        other = tables[mixed.randrange(len(tables))]
        table = [cupy.concatenate(pair)[: options.rows] for pair in zip(table, other)]
    tables.append(table)
    if len(tables) > options.kept:
        del tables[mixed.randrange(len(tables))]
    return sum(int(one.sum()) for one in table)


tables, times = [], []
for number in range(options.warmup + options.steps):
    cupy.cuda.runtime.deviceSynchronize()
    start = time.perf_counter()
    total = step(number, tables)
    cupy.cuda.runtime.deviceSynchronize()
    times.append((time.perf_counter() - start) * 1e3)
    emit("table", number, total)
live = sum(one.nbytes for table in tables for one in table)
write_figures(options.json, {"median_step_ms": median(times[options.warmup:]), "live_at_the_end": live})
