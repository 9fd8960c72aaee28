"""The pytest plugin, as pytest finds it in the environment that has the wheel."""

import json
import os
import sys

import pytest

import gpushim
from gpushim.pytest_plugin import parse_size

TESTS = """
import ctypes
import pytest

cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def allocate(size):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address


def use(size):
    assert cuda.cuMemFree_v2(allocate(size)) == 0


@pytest.fixture
def big():
    block = allocate(8 << 20)
    yield block
    assert cuda.cuMemFree_v2(block) == 0
"""


@pytest.fixture
def suite(pytester):
    """Makes a file of tests, and runs pytest on it, under gpushim unless told otherwise."""

    def run(tests, *options, preload=True):
        pytester.makepyfile(TESTS + tests)
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        return pytester.run(*([gpushim.command(), "run", "--"] if preload else []), *argv)

    return run


@pytest.fixture(autouse=True)
def no_trace(monkeypatch):
    monkeypatch.setenv("GPUSHIM_TRACE", "off")


@pytest.mark.parametrize(
    "text, size",
    [("512", 512), (7, 7), ("1k", 1024), ("2 GiB", 2 << 30), ("1.5g", 3 << 29), ("3MB", 3 << 20), (" 1 T ", 1 << 40), ("10b", 10)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 GiG", "1e9", -1, True, None, "1,5g"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)


def test_a_test_may_use_up_to_its_limit(suite):
    done = suite(
        """
@pytest.mark.gpu_memory(max_peak="2 MiB")
def test_small(): use(2 << 20)

@pytest.mark.gpu_memory(max_peak="2 MiB")
def test_large(): use((2 << 20) + 1)

@pytest.mark.gpu_memory(max_peak="2 MiB")
def test_fixtures_do_not_count(big): use(1 << 20)

def test_unmarked(): use(64 << 20)
"""
    )
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["*the test used 2.0 MiB of device memory at its peak, more than max_peak=2.0 MiB*"])
    done.stdout.fnmatch_lines(["*= GPU memory =*", "*peak*left*limit*baseline*test", "*2.0 MiB*2.0 MiB*::test_large (device memory)"])
    done.stdout.no_fnmatch_line("*::test_unmarked*")


def test_leaks_are_found(suite):
    done = suite(
        """
kept = []

@pytest.mark.gpu_memory(leaks=False)
def test_clean(): use(1 << 20)

@pytest.mark.gpu_memory(leaks=False)
def test_leaky(): kept.append(allocate(3000))

@pytest.mark.gpu_memory(leaks="1 MiB")
def test_allowed(): kept.append(allocate(3000))

@pytest.mark.gpu_memory
def test_listed_only(): kept.append(allocate(3000))

class Block:
    def __init__(self): self.address, self.me = allocate(5000), self
    def __del__(self): cuda.cuMemFree_v2(self.address)

@pytest.mark.gpu_memory(leaks=False)
def test_garbage_is_no_leak(): Block()

@pytest.mark.gpu_memory(leaks=False)
def test_that_fails_by_itself():
    block = allocate(10)
    assert False, "by itself"
"""
    )
    done.assert_outcomes(passed=4, failed=2)
    done.stdout.fnmatch_lines(["*the test left 2.9 KiB of device memory in use"])
    done.stdout.no_fnmatch_line("*left 10 B*")


def test_without_gpushim_marked_tests_are_skipped_with_the_reason(suite):
    tests = """
@pytest.mark.gpu_memory(max_peak=1)
def test_marked(): use(1 << 20)

def test_plain(): use(1 << 20)
"""
    done = suite(tests, "-rs", preload=False)
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["*gpushim is not preloaded: run the tests by `gpushim run -- pytest`*"])
    done.stdout.no_fnmatch_line("*GPU memory*")
    suite(tests, "--gpu-memory", preload=False).stdout.fnmatch_lines(["nothing was measured: gpushim is not preloaded*"])


@pytest.mark.parametrize("mark", ['gpu_memory("2 GiB")', "gpu_memory(peak=1)", 'gpu_memory(max_peak="much")', "gpu_memory(leaks=None)"])
def test_wrong_marks_are_refused_before_any_test(suite, mark):
    done = suite(f"@pytest.mark.{mark}\ndef test_it(): use(1)\n")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *test_it: gpu_memory*"])


BASELINE = """
import os
SIZE = int(os.environ["SIZE"])

def test_one(): use(SIZE)

def test_two(): use(4 << 20)
"""


def test_baselines(suite, pytester, monkeypatch):
    monkeypatch.setenv("SIZE", str(30 << 20))
    options = ("--gpu-memory-baseline", "memory.json")
    done = suite(BASELINE, *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: there is no baseline memory.json yet; make it with --gpu-memory-update"])
    suite(BASELINE, *options, "--gpu-memory-update").assert_outcomes(passed=2)
    written = json.loads((pytester.path / "memory.json").read_text())
    assert sorted((name.split("::")[1], one["peak"], one["of"]) for name, one in written["tests"].items()) == [
        ("test_one", 30 << 20, "device"),
        ("test_two", 4 << 20, "device"),
    ]
    suite(BASELINE, *options).assert_outcomes(passed=2)
    monkeypatch.setenv("SIZE", str(31 << 20))
    suite(BASELINE, *options).assert_outcomes(passed=2)
    monkeypatch.setenv("SIZE", str(32 << 20))
    done = suite(BASELINE, *options)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*the test used 32.0 MiB of device memory at its peak, and in the baseline 30.0 MiB;*"])
    suite(BASELINE, *options, "--gpu-memory-tolerance", "10").assert_outcomes(passed=2)
    suite(BASELINE, *options, "--gpu-memory-update", "-k", "one").assert_outcomes(passed=1, deselected=1)
    written = json.loads((pytester.path / "memory.json").read_text())
    assert sorted(one["peak"] for one in written["tests"].values()) == [4 << 20, 32 << 20]
    assert not [name for name in os.listdir(str(pytester.path)) if name.endswith(".new")]
    (pytester.path / "memory.json").write_text("[]")
    done = suite(BASELINE, *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: failed to read the baseline memory.json: *"])


def test_an_update_needs_a_file(suite):
    done = suite("", "--gpu-memory-update")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--gpu-memory-update needs --gpu-memory-baseline FILE*"])


def test_each_test_is_a_range_of_the_trace(suite, pytester, monkeypatch):
    monkeypatch.setenv("GPUSHIM_TRACE", str(pytester.path / "tests.trace"))
    suite("def test_it(): use(7000)\n", "--gpu-memory").assert_outcomes(passed=1)
    events = gpushim.load(pytester.path / "tests.trace").events("list")
    names = [one["name"] for one in events if one["kind"] == "range-push"]
    assert [name.split("::")[-1] for name in names] == ["test_it"]


def test_processes_of_xdist_report_to_one_table(suite, pytester):
    pytest.importorskip("xdist")
    done = suite(
        """
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sized(size): use(size << 20)
""",
        "-n2",
        "--gpu-memory-baseline=all.json",
        "--gpu-memory-update",
    )
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines([f"*{size}.0 MiB*test_sized*{size}*" for size in (4, 3, 2, 1)])
    written = json.loads((pytester.path / "all.json").read_text())
    assert sorted(one["peak"] for one in written["tests"].values()) == [size << 20 for size in (1, 2, 3, 4)]
