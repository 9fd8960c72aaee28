#!/usr/bin/env python3
"""Reads what `gpushim export` and `gpushim metrics` write with the programs that it is written for.

    tests/clients/formats.py --command FILE --work DIR [--viz FILE] [TRACE…]

Inputs are the PyTorch snapshots of tests/data, of which Python itself says what must come out, and the
traces named. --viz is PyTorch's `_memory_viz.py`. One line for each format; exit code 1 if one is wrong.
"""

import argparse
import csv
import gzip
import importlib.util
import json
import pathlib
import pickle
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "tests" / "data").glob("*.pickle.gz"))


class Wrong(Exception):
    """What a format gets wrong."""


def need(condition, text):
    """Says what is wrong unless it is as it must be."""
    if not condition:
        raise Wrong(text)


def facts(snapshot):
    """What a snapshot says of its end: bytes reserved and allocated, blocks, bytes asked for."""
    segments = snapshot["segments"]
    blocks = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    return (
        sum(s["total_size"] for s in segments),
        sum(s["allocated_size"] for s in segments),
        len(blocks),
        sum(b["requested_size"] for b in blocks),
    )


class Formats:
    """Writes each format of each input and reads it back."""

    def __init__(self, options):
        self.options = options
        self.failures = 0
        self.number = 0
        self.truth = {path: pickle.loads(gzip.decompress(path.read_bytes())) for path in SAMPLES}

    def run(self, *args):
        """The command's standard output."""
        done = subprocess.run([str(self.options.command), *map(str, args)], capture_output=True)
        need(done.returncode == 0, f"code {done.returncode}: {done.stderr.decode()[-300:]}")
        return done.stdout

    def export(self, form, *inputs, args=()):
        """A file in a format."""
        self.number += 1
        path = self.options.work / f"{self.number}.{form}"
        self.run("export", "--to", form, "-o", path, *args, *inputs)
        return path

    def inputs(self):
        """Each input, with what is known of it."""
        return [(path, self.truth.get(path)) for path in [*SAMPLES, *self.options.traces]]

    def memory_viz(self):
        """Python's pickle, and PyTorch's own module where it is there."""
        done = "pickle"
        for path, truth in self.inputs():
            content = self.export("memory-viz", path).read_bytes()
            snapshot = pickle.loads(content)
            for segment in snapshot["segments"]:
                sizes = sum(b["size"] for b in segment["blocks"])
                need(sizes == segment["total_size"], f"{path.name}: blocks do not fill their segment")
            if truth:
                (reserved, _, *blocks), (said, _, *found) = facts(truth), facts(snapshot)
                need((reserved, blocks) == (said, found), f"{path.name}: {blocks} of {reserved} became {found} of {said}")
            if self.options.viz:
                done = "pickle and PyTorch's _memory_viz.py"
                spec = importlib.util.spec_from_file_location("viz", self.options.viz)
                viz = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(viz)
                plain = lambda lines, *_: lines
                text = viz.segsum(snapshot) + viz.trace(snapshot) + viz.segments(snapshot, plain) + viz.memory(snapshot, plain)
                need(len(text) > 100, f"{path.name}: _memory_viz.py says nothing")
                need("<html" in viz.trace_plot(snapshot).lower() or "<script" in viz.trace_plot(snapshot), "no plot")
                viz.segment_plot(snapshot)
        return done

    def perfetto(self):
        """Perfetto's published messages."""
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

        packets = 0
        for path, truth in self.inputs():
            trace = Trace()
            trace.ParseFromString(self.export("perfetto", path).read_bytes())
            names, last, depth, uuids = {}, {}, {}, set()
            for packet in trace.packet:
                packets += 1
                need(packet.trusted_packet_sequence_id > 0, "a packet without a sequence")
                if packet.HasField("track_descriptor"):
                    track = packet.track_descriptor
                    uuids.add(track.uuid)
                    if track.HasField("counter"):
                        need(track.counter.unit == track.counter.UNIT_SIZE_BYTES, "counters are no bytes")
                        names[track.uuid] = track.name
                    need(not track.parent_uuid or track.parent_uuid in uuids, "a track without its parent")
                if packet.HasField("track_event"):
                    event = packet.track_event
                    need(event.track_uuid in uuids, "an event without its track")
                    if event.type == TrackEvent.TYPE_COUNTER:
                        last[names[event.track_uuid]] = event.counter_value
                    depth.setdefault(event.track_uuid, 0)
                    depth[event.track_uuid] += {TrackEvent.TYPE_SLICE_BEGIN: 1, TrackEvent.TYPE_SLICE_END: -1}.get(event.type, 0)
                    need(depth[event.track_uuid] >= 0, "a slice ends that did not begin")
            if truth:
                reserved, allocated, *_ = facts(truth)
                devices = {segment["device"] for segment in truth["segments"]}
                said = tuple(sum(last.get(f"gpu {device} {name}", 0) for device in devices) for name in ("tensors reserved", "tensors"))
                need(said == (reserved, allocated), f"{path.name}: {said} for {(reserved, allocated)}")
        return f"perfetto's messages, {packets} packets"

    def firefox(self):
        """The tables of the processed profile: equal lengths, places within them, and the sum."""
        samples = 0
        for path, truth in self.inputs():
            profile = json.loads(self.export("firefox", path).read_text())
            need(profile["meta"]["preprocessedProfileVersion"] > 40, "no version")
            strings = profile.get("shared", {}).get("stringArray")
            for thread in profile["threads"]:
                words = thread.get("stringArray") or strings
                for name in ("frameTable", "stackTable", "funcTable", "nativeAllocations"):
                    table = thread.get(name)
                    if table is None:
                        continue
                    lengths = {len(column) for column in table.values() if isinstance(column, list)}
                    need(lengths == {table["length"]}, f"{name}: columns of {lengths} for {table['length']}")
                stacks, functions = thread["stackTable"], thread["funcTable"]
                need(all(p is None or p < at for at, p in enumerate(stacks["prefix"])), "a stack before its prefix")
                need(all(f < thread["frameTable"]["length"] for f in stacks["frame"]), "a frame that is not there")
                need(all(n < len(words) for n in functions["name"]), "a name that is not there")
                allocations = thread.get("nativeAllocations") or {"weight": [], "length": 0}
                samples += allocations["length"]
                if truth:
                    need(sum(allocations["weight"]) == facts(truth)[3], f"{path.name}: what is retained differs")
        return f"{samples} allocation samples; there is no published schema"

    def pprof(self):
        """pprof's messages, described as its profile.proto does, and decoded by Google's protobuf."""
        profile_of = pprof_message()
        samples = 0
        for path, truth in self.inputs():
            profile = profile_of()
            profile.ParseFromString(gzip.decompress(self.export("pprof", path).read_bytes()))
            text = profile.string_table
            need(text[0] == "", "the first text is not empty")
            types = [text[kind.type] for kind in profile.sample_type]
            need(text[profile.default_sample_type] in types, "the default is no sample type")
            locations = {location.id: location for location in profile.location}
            functions = {function.id for function in profile.function}
            samples += len(profile.sample)
            for sample in profile.sample:
                need(len(sample.value) == len(types), "a sample lacks values")
                need(all(place in locations for place in sample.location_id), "a sample is nowhere")
            need(all(line.function_id in functions for place in profile.location for line in place.line), "a line is in no function")
            if truth:
                live = sum(sample.value[types.index("inuse_space")] for sample in profile.sample)
                need(live == facts(truth)[3], f"{path.name}: live bytes differ: {live}")
        return f"protobuf, {samples} samples"

    def folded(self):
        """A line for each stack."""
        for path, truth in self.inputs():
            lines = self.run("export", "--to", "folded", "--of", "live", path).decode().splitlines()
            if truth:
                need(sum(int(line.rsplit(" ", 1)[1]) for line in lines) == facts(truth)[3], f"{path.name}: live bytes differ")
        return "its sums"

    def rmm(self):
        """Python's csv, and the command itself."""
        for path, truth in self.inputs():
            log = self.export("rmm", path)
            rows = list(csv.DictReader(log.open()))
            need(list(rows[0]) == ["Thread", "Time", "Action", "Pointer", "Size", "Stream"], "columns")
            sign = {"allocate": 1, "free": -1, "allocate failure": 0}
            if truth:
                live = sum(sign[row["Action"]] * int(row["Size"]) for row in rows)
                need(live == facts(truth)[3], f"{path.name}: live bytes differ")
            self.run("report", log)
        return "csv and gpushim"

    def json(self):
        """An object a line."""
        count = 0
        for path, _ in self.inputs():
            lines = [json.loads(line) for line in self.run("export", "--to", "json", path).decode().splitlines()]
            told = {line["stack"] for line in lines if "frames" in line}
            need(all(line.get("stack", None) in told for line in lines if "event" in line and "stack" in line), "a stack is not told")
            count += len(lines)
        return f"{count} lines"

    def parquet(self):
        """pyarrow, and DuckDB with each query of docs/export.md."""
        import duckdb
        import pyarrow
        import pyarrow.dataset

        lake = self.options.work / "lake"
        paths = [path for path, _ in self.inputs()]
        self.run("export", "--to", "parquet", "-o", lake, "--job", "night-7", *paths)
        # No rank of these is known, and pyarrow guesses a type from values only.
        keys = pyarrow.schema([("job", pyarrow.string()), ("host", pyarrow.string()), ("rank", pyarrow.int32())])
        data = pyarrow.dataset.dataset(lake / "events", partitioning=pyarrow.dataset.partitioning(keys, flavor="hive"))
        table = data.to_table()
        need(set(table.column("job").to_pylist()) == {"night-7"}, "the job is not a column")
        need(table.schema.field("time").type.tz == "UTC", "times have no zone")
        made = sum(len(trace) - sum(e["action"] == "free_completed" for e in trace) for t in self.truth.values() for trace in t["device_traces"])
        need(table.num_rows >= made, f"{table.num_rows} rows for at least {made} events")
        page = (ROOT / "docs" / "export.md").read_text()
        queries = re.findall(r"```sql\n(.*?)```", page, re.S)
        need(len(queries) >= 5, "docs/export.md has lost its queries")
        base = duckdb.connect()
        rows = 0
        for query in queries:
            found = base.execute(query.replace("lake/", f"{lake}/")).fetchall()
            need(found, f"no rows from: {query.splitlines()[0]}")
            rows += len(found)
        return f"pyarrow, {table.num_rows} rows; DuckDB, {len(queries)} queries of docs/export.md, {rows} rows"

    def metrics(self):
        """The parser of the OpenMetrics client library."""
        from prometheus_client.openmetrics.parser import text_string_to_metric_families

        out = self.options.work / "gpushim.prom"
        self.run("metrics", "-o", out, *(path for path, _ in self.inputs()))
        families = list(text_string_to_metric_families(out.read_text()))
        for family in families:
            labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
            need(len(labels) == len(set(labels)), f"{family.name}: two samples with the same labels")
        said = {family.name: sum(sample.value for sample in family.samples) for family in families}
        need({"gpushim_reserved_bytes", "gpushim_events", "gpushim_out_of_memory"} <= set(said), f"{sorted(said)}")
        left = [path for path in self.options.work.iterdir() if path.name.endswith(".unfinished")]
        need(not left, f"left behind: {left}")
        return f"{len(families)} families"

    def judge(self, check):
        """One line."""
        name = "metrics" if check == self.metrics else f"export {check.__name__.replace('_', '-')}"
        try:
            print(f"ok   {name} ({check()})", flush=True)
        except Exception as error:
            self.failures += 1
            print(f"FAIL {name}\n       {type(error).__name__}: {str(error)[:400]}", flush=True)


def pprof_message():
    """The class of `perftools.profiles.Profile`, from the fields that pprof documents."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    number, text, many = "int64", "string", True
    messages = {
        "ValueType": [("type", 1, number, False), ("unit", 2, number, False)],
        "Label": [("key", 1, number, False), ("str", 2, number, False), ("num", 3, number, False), ("num_unit", 4, number, False)],
        "Sample": [("location_id", 1, "uint64", many), ("value", 2, number, many), ("label", 3, "Label", many)],
        "Line": [("function_id", 1, "uint64", False), ("line", 2, number, False)],
        "Location": [("id", 1, "uint64", False), ("mapping_id", 2, "uint64", False), ("address", 3, "uint64", False), ("line", 4, "Line", many)],
        "Function": [("id", 1, "uint64", False), ("name", 2, number, False), ("system_name", 3, number, False), ("filename", 4, number, False), ("start_line", 5, number, False)],
        "Profile": [
            ("sample_type", 1, "ValueType", many), ("sample", 2, "Sample", many), ("location", 4, "Location", many),
            ("function", 5, "Function", many), ("string_table", 6, text, many), ("time_nanos", 9, number, False),
            ("duration_nanos", 10, number, False), ("period_type", 11, "ValueType", False), ("default_sample_type", 14, number, False),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    kinds = {"int64": 3, "uint64": 4, "string": 9}
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, place, kind, repeated in fields:
            made = message.field.add(name=field, number=place, label=3 if repeated else 1)
            made.type = kinds.get(kind, 11)
            if kind not in kinds:
                made.type_name = f".perftools.profiles.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("command", "work"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--viz", type=pathlib.Path)
    parser.add_argument("traces", nargs="*", type=pathlib.Path)
    formats = Formats(parser.parse_args())
    formats.options.work.mkdir(parents=True, exist_ok=True)
    for check in ("memory_viz", "perfetto", "firefox", "pprof", "folded", "rmm", "json", "parquet", "metrics"):
        formats.judge(getattr(formats, check))
    return 1 if formats.failures else 0


if __name__ == "__main__":
    sys.exit(main())
