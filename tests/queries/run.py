#!/usr/bin/env python3
"""Runs docs/queries/*.sql on a dataset of a made-up job, and compares each answer with gpushim's own.

    tests/queries/run.py --target DIR [--spark]

The job has 12 ranks, three of them with a fault, two processes that are workers, and names that are hard to put in a
path. Answers are compared as JSON, to the byte. Exit code: 0 all well, 1 an answer differs, 3 the engine could not be had (said on the
last line).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUERIES = ROOT / "docs" / "queries"
sys.path.insert(0, str(ROOT / "tests" / "clients"))
JOB = "night/../7 =é%"
RANKS, FAULTS = 12, 3


def as_text(rows):
    """Rows as JSON, one a line: what is compared."""
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def ask(command, *args, key="results"):
    """What a subcommand says as JSON."""
    done = subprocess.run([command, *map(str, args), "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"gpushim {args[0]}: {done.stderr}")
    return json.loads(done.stdout)[key]


def site(function):
    """A function as the column `site` has it."""
    if not function:
        return ""
    place = pathlib.PurePath(function["file"] or "").name
    return f"{function['name']}  {place}:{function['line']}" if function["line"] else f"{function['name']}  {place}"


def attached_summary(path):
    """The summary attached to a trace, where it is all that is attached: docs/trace-format.md."""
    content = path.read_bytes()
    length = int.from_bytes(content[-32:-24], "little")
    return json.loads(content[-48 - length : -48])


class Expected:
    """The answers of gpushim itself, each in the order and with the columns of the query of that name."""

    def __init__(self, command, folder):
        self.command = command
        (self.of_job,) = ask(command, "report", "--keep", "--job", JOB, folder, key="jobs")
        self.ranks = self.of_job["ranks"]
        self.summaries = {}
        for path in folder.rglob("*.trace"):
            self.summaries[str(path)] = attached_summary(path)

    def answers(self):
        return {name: getattr(self, name.replace("-", "_"))() for name in sorted(path.stem for path in QUERIES.glob("*-*.sql"))}

    def who_peaks(self):
        least = min(rank["peak"] for rank in self.ranks)
        rows = [[JOB, r["rank"], r["host"], r["device"], r["peak"], r["peak_ns"], r["peak"] - least] for r in self.ranks]
        return sorted(rows, key=lambda row: (-row[4], row[1]))

    def growth_per_rank(self):
        leaks = {int(rank) for one in self.of_job["outliers"] if one["kind"] == "leak" for rank in one["ranks"]}
        rows = [
            [JOB, r["rank"], r["host"], r["iterations"], r["iteration_ns"], r["per_iteration"], r["rank"] in leaks]
            for r in self.ranks
            if r["iterations"] is not None
        ]
        return sorted(rows, key=lambda row: (-row[5], row[1]))

    def imbalance_per_phase(self):
        spread = ("sum", "least", "p10", "median", "p90", "most")
        rows = [[JOB, p["name"], *(p["peak"][key] for key in spread), int(p["highest"])] for p in self.of_job["phases"]]
        return sorted(rows, key=lambda row: row[1].encode())

    def fragmentation_over_time(self):
        rows = []
        for rank in self.ranks:
            of = self.summaries[rank["file"]]["over_time"]
            for place, reserved in enumerate(of["reserved_kib"]):
                live = of["live_kib"][place] * 1024
                rows.append([JOB, rank["rank"], place * of["column_ns"], live, reserved * 1024, reserved * 1024 - live])
        return rows

    def live_at_peak_by_function(self):
        rows = []
        for rank in self.ranks:
            (peak,) = ask(self.command, "peak", "--top", "100000", rank["file"])
            functions = {}
            for holder in peak["holders"]:
                of = functions.setdefault(site(holder["function"]), [0, 0])
                of[0] += holder["bytes"]
                of[1] += holder["blocks"]
            of_rank = [[JOB, rank["rank"], function, *figures] for function, figures in functions.items()]
            rows += sorted(of_rank, key=lambda row: (-row[3], row[2].encode()))
        return rows

    def functions_at_the_peaks(self):
        rows = [[JOB, of["function"], of["bytes"], of["ranks"]] for of in self.of_job["functions"]]
        return sorted(rows, key=lambda row: (-row[2], row[1].encode()))


def statements(name, lake):
    """The statements of a file, for a dataset elsewhere."""
    text = (QUERIES / f"{name}.sql").read_text().replace("'lake/", f"'{lake}/")
    text = re.sub(r"^--.*$", "", text, flags=re.M)
    return [one.strip() for one in text.split(";") if one.strip()]


def duckdb_answers(lake, names):
    import duckdb

    base = duckdb.connect()
    for statement in statements("duckdb", lake) + statements("ranks", lake):
        base.execute(statement)
    return {name: [list(row) for row in base.execute(*statements(name, lake)).fetchall()] for name in names}


def spark_answers(lake, names, memory="2g"):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("gpushim")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Several partitions of the little data that there is, as many executors would have.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "256k",
        "spark.sql.files.openCostInBytes": "64k",
        "spark.sql.warehouse.dir": str(lake / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for statement in statements("spark", lake) + statements("ranks", lake):
            spark.sql(statement)
        parts = spark.table("events").rdd.getNumPartitions()
        if parts < 4:
            raise SystemExit(f"{parts} partitions of events: this compares nothing that is distributed")
        return {name: [list(row) for row in spark.sql(*statements(name, lake)).collect()] for name in names}
    finally:
        spark.stop()


def polars_peaks(lake):
    """The peaks by a short expression: rank and bytes."""
    import polars

    text = dict.fromkeys(("job", "host", "rank"), polars.String)
    events = polars.scan_parquet(lake / "events", hive_partitioning=True, hive_schema=text)
    tensors = events.filter(polars.col("kind").is_in(["tensor-alloc", "tensor-free"]))
    peaks = tensors.group_by("job", "rank", "trace").agg(polars.col("live").max()).group_by("job", "rank").agg(polars.col("live").max())
    return sorted(([row[0], int(row[1]), row[2]] for row in peaks.collect().rows()), key=lambda row: row[1])


def make(target, work):
    """The traces of a job, with those of workers, and the dataset of them."""
    traces, lake = work / "traces", work / "lake"
    maker = target / "debug" / "examples" / "fleet_ranks"
    for folder, ranks, faults, allocations in (traces, RANKS, FAULTS, 600), (traces / "workers", 2, 0, 300):
        argv = [maker, folder, ranks, faults, allocations, 14, JOB]
        subprocess.run([str(part) for part in argv], check=True, stdout=subprocess.DEVNULL)
    command = target / "debug" / "gpushim"
    expected = Expected(command, traces)
    for _ in range(2):
        # The second time replaces what the first one wrote.
        subprocess.run([command, "export", "--to", "parquet", "-o", lake, traces], check=True)
    files = sorted(lake.rglob("*.parquet"))
    if len(files) != 5 * len(list(traces.rglob("*.trace"))):
        raise SystemExit(f"{len(files)} files")
    return expected, lake


def difference(found, wanted):
    """The first line in which texts differ."""
    pairs = zip(found.splitlines() + ["(nothing)"], wanted.splitlines() + ["(nothing)"])
    for number, (ours, theirs) in enumerate(pairs, 1):
        if ours != theirs:
            return f"row {number}: {ours}\n       gpushim: {theirs}"
    return "one has more rows"


def compare(engine, found, wanted):
    """Whether all answers are equal."""
    failures = 0
    for name, rows in wanted.items():
        ours, theirs = as_text(found[name]), as_text(rows)
        if not rows or ours != theirs:
            failures += 1
            print(f"FAIL {engine} {name}\n       {difference(ours, theirs)}", flush=True)
        else:
            print(f"ok   {engine} {name} ({len(rows)} rows, {len(theirs.encode())} bytes)", flush=True)
    return failures


def java():
    """Why Spark cannot run here; nothing if it can."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        return "Java is missing (apt install openjdk-17-jre-headless)"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--spark", action="store_true", help="Spark in place of DuckDB and Polars")
    options = parser.parse_args()
    name, file, module = ("queries-spark", "requirements-spark.txt", "pyspark") if options.spark else ("queries", "requirements.txt", "duckdb")
    reason = java() if options.spark else ""
    if reason:
        print(f"Spark was not run: {reason}")
        return 3
    try:
        __import__(module)
    except ImportError:
        from run import environment

        python, reason = environment(options.target, name, HERE / file, only_wheels=not options.spark)
        if not python:
            print(f"{module} was not run: {reason}")
            return 3
        return subprocess.run([python, __file__, *sys.argv[1:]]).returncode
    with tempfile.TemporaryDirectory(prefix="queries-") as work:
        expected, lake = make(options.target, pathlib.Path(work))
        wanted = expected.answers()
        if options.spark:
            failures = compare("Spark", spark_answers(lake, wanted), wanted)
        else:
            failures = compare("DuckDB", duckdb_answers(lake, wanted), wanted)
            peaks = [[JOB, rank["rank"], rank["peak"]] for rank in expected.ranks]
            failures += compare("Polars", {"peaks": polars_peaks(lake)}, {"peaks": peaks})
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
