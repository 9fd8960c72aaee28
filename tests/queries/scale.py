#!/usr/bin/env python3
"""Measures the queries of docs/queries on many ranks with a million events each.

    tests/queries/scale.py --target DIR --work DIR [--ranks 512] [--engine spark|duckdb] [--memory 8g] [QUERY…]

One rank of a made-up job is exported, and its files are linked under the other ranks, so that WORK need not hold all of
them; views give each rank a `trace` of its own. Prints rows, seconds and the most memory of the engine. Run it with a Python that has the
engine: scripts/test queries and scripts/test spark leave one in target/queries-… and target/queries-spark-….
"""

import argparse
import os
import pathlib
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run

STEPS = 832
"""Of a rank: a million events."""


def make(target, work, ranks):
    """The dataset, unless it is there."""
    lake = work / "lake"
    if not (work / "one").exists():
        maker = target / "debug" / "examples" / "fleet_ranks"
        subprocess.run([maker, work / "one", "1", "0", "600", str(STEPS)], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([target / "debug" / "gpushim", "export", "--to", "parquet", "-o", lake, work / "one"], check=True)
    for file in list(lake.rglob("rank=0/*.parquet")):
        job = file.parents[2]
        for rank in range(1, ranks):
            folder = job / f"host=node{rank // 8:03}" / f"rank={rank}"
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / file.name).exists():
                os.link(file, folder / file.name)
    return lake


def resident():
    """MiB of this process and of those that it started."""
    total, parents = 0, {os.getpid()}
    for path in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if int(path.name) in parents or int(fields[1]) in parents:
                parents.add(int(path.name))
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            pass
    return total >> 20


class Most:
    """The most memory while something runs."""

    def __enter__(self):
        self.most, self.is_over = 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.is_over.wait(0.2):
            self.most = max(self.most, resident())

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def of_each_rank(statement):
    """A view in which `trace` tells ranks apart whose files are links to one."""
    return f"SELECT * EXCLUDE (trace), concat(trace, '-', rank) AS trace FROM ({statement})"


def duckdb(lake, memory):
    import duckdb as engine

    base = engine.connect()
    base.execute(f"SET memory_limit = '{memory.upper()}B'; SET temp_directory = '{lake}/../spill'; SET preserve_insertion_order = false")
    for statement in run.statements("duckdb", lake):
        view, select = statement.split(" AS\n", 1)
        base.execute(f"{view} AS {of_each_rank(select)}")
    base.execute(*run.statements("ranks", lake))
    return lambda text: len(base.execute(text).fetchall())


def spark(lake, memory):
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master("local[2]").appName("gpushim")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(lake.parent / "spill"),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for statement in run.statements("spark", lake):
        session.sql(statement)
    for table in ("events", "summaries", "holders", "phases", "over_time"):
        frame = session.table(table)
        frame = frame.withColumn("trace", functions.concat_ws("-", "trace", "rank"))
        frame.createOrReplaceTempView(table)
    session.sql(*run.statements("ranks", lake))
    return lambda text: len(session.sql(text).collect())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "work"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--engine", choices=("spark", "duckdb"), default="spark")
    parser.add_argument("--memory", default="8g")
    parser.add_argument("queries", nargs="*")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    lake = make(options.target, options.work, options.ranks)
    ask = {"spark": spark, "duckdb": duckdb}[options.engine](lake, options.memory)
    with Most() as memory:
        begin = time.time()
        ask("SELECT count(*) FROM events")
        print(f"{options.engine}, {options.ranks} ranks: the rows counted in {time.time() - begin:.1f} s", flush=True)
    for name in options.queries or sorted(path.stem for path in run.QUERIES.glob("*-*.sql")):
        with Most() as memory:
            begin = time.time()
            rows = ask(*run.statements(name, lake))
            seconds = time.time() - begin
        print(f"{name}: {rows} rows, {seconds:.1f} s, {memory.most} MiB", flush=True)


main()
