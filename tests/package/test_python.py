"""The Python package as it is installed: run.py runs this in the environment that has the wheel."""

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

import gpushim

LOOP = pathlib.Path(__file__).parent / "loop.py"


@pytest.fixture(scope="session")
def trace(tmp_path_factory):
    """A trace of a program in Python, on the stand-in driver."""
    path = tmp_path_factory.mktemp("run") / "run.trace"
    run_python(LOOP, "train", GPUSHIM_TRACE=str(path), GPUSHIM_STACKS="all")
    assert path.exists()
    return path


RELEASE = gpushim.__version__.split("+")[0]
"""The version without the commit, which only the wheel's has."""

def run_python(*arguments, preload=True, **variables):
    """Runs Python, under gpushim unless told otherwise; what it printed."""
    argv = [sys.executable, *map(str, arguments)]
    if preload:
        argv = [gpushim.command(), "run", "--", *argv]
    env = {**os.environ, "GPUSHIM_TRACE": "off", **variables}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_the_command_is_the_packages_own():
    said = subprocess.run([gpushim.command(), "--version"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    assert said.startswith(f"gpushim {RELEASE}, ")
    as_module = subprocess.run([sys.executable, "-m", "gpushim", "--version"], stdout=subprocess.PIPE, universal_newlines=True, check=True)
    assert as_module.stdout == said


def test_no_file_and_no_trace_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError):
        gpushim.load(tmp_path / "none.trace")
    damaged = tmp_path / "damaged.trace"
    damaged.write_bytes(b"no trace at all")
    with pytest.raises(gpushim.GpushimError, match="^failed to read the trace .*damaged.trace"):
        gpushim.load(damaged).findings


def test_what_goes_wrong_beside_an_answer_is_a_warning(trace, tmp_path, monkeypatch):
    script = tmp_path / "gpushim"
    script.write_text("""#!/bin/sh\necho '{"results": [{"of": "this"}]}'\necho 'gpushim: failed to read all of it' >&2\nexit 2\n""")
    script.chmod(0o755)
    monkeypatch.setattr("gpushim._command.command", lambda: str(script))
    with pytest.warns(RuntimeWarning, match="^failed to read all of it$"):
        assert gpushim.load(trace).ask("growth") == {"of": "this"}
    script.write_text("#!/bin/sh\necho no JSON\n")
    with pytest.raises(gpushim.GpushimError, match="did not print its JSON"):
        gpushim.load(trace).ask("growth")


def test_findings_name_what_leaks(trace):
    recording = gpushim.load(trace)
    leaks = [one for one in recording.findings if one.kind == "growth"]
    assert leaks and leaks[0].bytes > 0 and leaks[0].text and leaks[0].next
    assert leaks[0].site is not None
    assert leaks[0].text in str(recording.findings)
    assert any(key == "library" and value.startswith(RELEASE) for key, value in recording.facts)


def test_pages_escape_what_the_program_chose():
    function = gpushim.Function("<b>f</b>", file="/tmp/<i>.py", line=3)
    finding = gpushim.Finding("growth", "tensors", "a & b <script>", fix="x < y", site=gpushim.CallSite(function), sure=True)
    page = gpushim.Findings([finding])._repr_html_()
    assert "<script>" not in page and "<b>f" not in page and "<i>.py" not in page
    for part in ("a &amp; b &lt;script&gt;", "&lt;b&gt;f&lt;/b&gt;", "/tmp/&lt;i&gt;.py:3", "x &lt; y"):
        assert part in page
    assert "not certain" not in page
    assert "Nothing stands out" in gpushim.Findings()._repr_html_()


def test_a_recording_is_a_page(trace, tmp_path):
    page = gpushim.load(trace)._repr_html_()
    assert "<table>" in page and str(trace) in page
    odd = tmp_path / "<b>.trace"
    odd.write_bytes(trace.read_bytes())
    assert "<b>.trace" not in gpushim.load(odd)._repr_html_()


def test_lists_need_nothing_installed(trace):
    recording = gpushim.load(trace)
    events = recording.events("list")
    allocated = [one for one in events if one["kind"] == "alloc"]
    freed = [one for one in events if one["kind"] == "free"]
    # loop.py: 12 steps of three blocks, one of which stays; and the one of its own.
    assert (len(allocated), len(freed)) == (37, 24)
    assert {one["name"] for one in events if one["kind"] == "range-push"} == {"step", "forward"}
    live, peak = recording.live("list"), recording.peak("list")
    assert sum(one["bytes"] for one in live) == 12 * 4096 + 1000
    assert sum(one["bytes"] for one in peak) == 12 * 4096 + 1000 + 2 * 8192
    assert max(one["requested"] or 0 for one in recording.timeline("list")) == 12 * 4096 + 1000 + 2 * 8192
    assert [one["bytes"] for one in peak] == sorted((one["bytes"] for one in peak), reverse=True)
    assert recording.peak("list", at=0.0) == []
    assert recording.peak("list", of="host") == []


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_tables_say_the_same_as_lists(trace, kind):
    if not installed(kind):
        with pytest.raises(ImportError, match="pip install"):
            gpushim.load(trace).events(kind)
        pytest.skip(f"{kind} is not installed here")
    recording = gpushim.load(trace)
    events, rows = recording.events(kind), recording.events("list")
    assert len(events) == len(rows)
    for name in ("kind", "size", "address", "thread"):
        assert list(events[name]) == [row[name] for row in rows]
    stacks = [one if isinstance(one, str) else None for one in events["stack"]]
    assert [one or None for one in stacks] == [row.get("stack") or None for row in rows]
    for what in ("live", "peak", "timeline"):
        table, rows = getattr(recording, what)(kind), getattr(recording, what)("list")
        assert len(table) == len(rows) and set(table.columns) == set(rows[0])
    assert "bytes" in recording.peak(kind, of="host").columns


def test_wrong_tables_are_refused(trace):
    with pytest.raises(ValueError, match='"pandas", "polars" or "list"'):
        gpushim.load(trace).events("arrow")


def test_without_gpushim_nothing_happens():
    said = run_python(LOOP, "plain", preload=False)
    assert said.splitlines() == ["preloaded False None", "stats None None", "recording False False", "value 7"]


def test_under_gpushim_figures_are_this_process():
    said = run_python(LOOP, "plain").splitlines()
    assert said[0].startswith(f"preloaded True {RELEASE}, ")
    assert said[2:] == ["recording True False", "value 7"]


def test_peaks_and_pauses():
    said = run_python(LOOP, "peaks").splitlines()
    assert said == ["in use 1000, peak 51000", "reset 1000", "in use 1000, peak 1000", "kinds device", "paused False, then True"]


def test_what_is_paused_is_not_in_the_trace(tmp_path):
    path = tmp_path / "paused.trace"
    run_python(LOOP, "paused", GPUSHIM_TRACE=str(path))
    sizes = [one["size"] for one in gpushim.load(path).events("list") if one["kind"] == "alloc"]
    assert sizes == [1000, 3000]


def test_ranges_decorate_plain_functions_only():
    @gpushim.range("it")
    def plain(a, b=2):
        """Adds."""
        return a + b

    assert (plain(1), plain(1, b=3), plain.__name__, plain.__doc__) == (3, 4, "plain", "Adds.")

    async def coroutine():
        pass

    def generator():
        yield

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match="plain functions"):
            gpushim.range("it")(function)


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="tensors, device, managed, host"):
        gpushim.usage("memory")


def test_a_range_costs_little():
    ns = float(run_python(LOOP, "cost", GPUSHIM_TRACE=os.path.join(os.environ["PACKAGE_WORK"], "cost.trace")))
    print(f"a range costs {ns:.0f} ns")
    # Of this thread's own time: the machine that this was written on is shared, and took 1,500 ns.
    assert ns < 10_000
