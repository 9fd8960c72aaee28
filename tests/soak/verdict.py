"""What a soak's figures must be, minute by minute: flat from the second minute on.

`python3 tests/soak/verdict.py` checks the rules themselves on made-up figures.
"""

import sys

# What may not grow after the second line of figures: name, unit, how much more is allowed (a share, and a number).
FLAT = (
    ("rss", "KiB of resident memory", 0.02, 0),
    ("address_space", "KiB of address space", 0.02, 0),
    ("descriptors", "descriptors", 0, 0),
    ("threads", "threads", 0, 0),
    ("live", "live blocks", 0, 0),
    ("quarantined", "bytes that wait for graphs", 0, 0),
    ("held", "bytes of device memory", 0, 64 << 20),
)
# Lines before this one (from 0) are the start: everything is used for the first time.
BASE = 1


def complaints(lines):
    """What is wrong with a soak's lines of figures (dictionaries of numbers, a line each minute)."""
    found = []
    if len(lines) < BASE + 2:
        found.append(f"{len(lines)} lines of figures are too few to tell")
    else:
        base, later = lines[BASE], lines[BASE + 1:]
        for name, unit, share, more in FLAT:
            worst = max(line[name] for line in later)
            if worst > base[name] * (1 + share) + more:
                found.append(f"{unit}: {base[name]:.0f} at line {BASE + 1}, then {worst:.0f}")
    for line in lines:
        need = line["streams_peak"] * max(line["pools"], 1)
        if line["queues"] > need:
            found.append(f"stream queues: {line['queues']:.0f}, though at most {need:.0f} were needed at a time")
            break
    if lines and lines[-1]["wrong"]:
        found.append(f"wrong contents: {lines[-1]['wrong']:.0f}")
    return found


def parse(line):
    """`NAME VALUE NAME VALUE …` as a dictionary."""
    words = line.split()
    return {name: float(value) for name, value in zip(words[::2], words[1::2])}


def mib(kib):
    """KiB in MiB, for a line."""
    return f"{kib / 1024:.1f} MiB"


def shown(line):
    """One line of figures for a reader. The heap is known on the stand-in driver only."""
    heap = f"of it heap {line['heap']:.0f} KiB, " if "heap" in line else ""
    return (
        f"host {mib(line['rss'])}, {heap}{line['descriptors']:.0f} descriptors, {line['threads']:.0f} threads, "
        f"{line['queues']:.0f} stream queues, address space {line['address_space'] / (1 << 20):.1f} GiB, "
        f"live {line['live']:.0f}, cached {mib(line['cached'] / 1024)}, reserved {mib(line['reserved'] / 1024)}, "
        f"device {mib(line['held'] / 1024)}, {line['rate']:.0f} operations/s, {line['wrong']:.0f} wrong"
    )


def self_test():
    """Each rule says nothing of flat figures and something of each that grows."""
    flat = {"rss": 1000, "address_space": 5000, "descriptors": 9, "threads": 6, "live": 0, "quarantined": 0, "held": 0,
            "queues": 20, "streams_peak": 10, "pools": 2, "wrong": 0}
    assert complaints([flat] * 5) == []
    assert complaints([flat] * 2) != []
    # The first minute is the start, and less is no complaint.
    assert complaints([{**flat, "rss": 5000}, flat, {**flat, "rss": 1019}, {**flat, "rss": 900}]) == []
    for name, value in (("rss", 1021), ("address_space", 5101), ("descriptors", 10), ("threads", 7), ("live", 1),
                        ("quarantined", 1), ("held", (64 << 20) + 1), ("queues", 21), ("wrong", 1)):
        found = complaints([flat, flat, flat, {**flat, name: value}])
        assert len(found) == 1, (name, found)
    # As on a GPU, and as on the stand-in driver.
    line = {**flat, "cached": 0, "reserved": 0, "rate": 1}
    assert "heap" not in shown(line) and "of it heap 7 KiB" in shown({**line, "heap": 7})
    assert parse("a 1 b 2.5") == {"a": 1.0, "b": 2.5}
    print("verdict: the rules hold")


if __name__ == "__main__":
    self_test()
    sys.exit(0)
