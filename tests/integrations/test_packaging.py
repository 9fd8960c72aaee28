"""The files of packaging/ and the GitHub Action: what of them runs here is run, with the tarball of scripts/package.

The conda package is built, the Action's step and Slurm's files are run, the job's variables record a program. The image is not
built, as no base image can be had: its instructions are compared with the tarball.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
VERSION = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
PROGRAM = [sys.executable, str(ROOT / "tests/programs/train.py"), "--steps", "8", "--layers", "4", "--width", "256"]


def run(argv, env=None, codes=(0,), **options):
    done = subprocess.run([str(part) for part in argv], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=120, **options)
    assert done.returncode in codes, done.stdout[-3000:]
    return done.stdout


def checked(tool, *argv):
    """Has a tool of the environment check a file, if it is there."""
    path = pathlib.Path(sys.executable).with_name(tool)
    if path.exists():
        run([path, *argv])


@pytest.fixture(scope="session")
def tarball():
    name = f"gpushim-{VERSION}-{os.uname().machine}-linux-gnu.tar.gz"
    path = pathlib.Path(os.environ.get("INTEGRATIONS_PACKAGES", "")) / name
    if not path.is_file():
        pytest.skip("the packages are not made (INTEGRATIONS_PACKAGES names their folder)")
    return path


@pytest.fixture(scope="session")
def root(tarball, tmp_path_factory):
    """The tarball, unpacked as the image has it."""
    folder = tmp_path_factory.mktemp("opt")
    with tarfile.open(tarball) as archive:
        archive.extractall(folder)
    return (folder / tarball.name[: -len(".tar.gz")]).rename(folder / "gpushim")


@pytest.fixture(scope="session")
def trace(root, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.trace"
    run([root / "bin/gpushim", "run", "--quiet", "--trace", path, "--", *PROGRAM])
    return path


def test_the_versions_are_those_of_the_project():
    recipe = yaml.safe_load((PACKAGING / "conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == VERSION
    assert f"ARG VERSION={VERSION}\n" in (PACKAGING / "container/Dockerfile").read_text()
    for name in ["job.yaml", "shared-limit.yaml"]:
        assert f"gpushim:{VERSION}" in (PACKAGING / "container" / name).read_text()


def test_the_conda_package_is_built(tarball, tmp_path):
    rattler_build = pytest.importorskip("rattler_build", reason="rattler-build is not installed: the conda package is not built")
    (tmp_path / "packaging/conda").mkdir(parents=True)
    (tmp_path / "dist/packages").mkdir(parents=True)
    shutil.copy(PACKAGING / "conda/recipe.yaml", tmp_path / "packaging/conda")
    shutil.copy(tarball, tmp_path / "dist/packages")
    recipe = tmp_path / "packaging/conda/recipe.yaml"
    rattler_build.build_recipes([recipe], output_dir=tmp_path / "out", channel=[], test="native")
    (made,) = (tmp_path / "out").rglob(f"gpushim-{VERSION}-*.conda")
    assert made.stat().st_size > 1 << 20


def action(root, trace, tmp_path, **inputs):
    """Runs the Action's own step as a runner does; its exit code, what it printed, and the summary."""
    described = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {name: one["default"] for name, one in described["inputs"].items()}
    given.update({"files": str(trace), **{name.replace("_", "-"): value for name, value in inputs.items()}})
    assert set(given) == set(described["inputs"])
    step = described["runs"]["steps"][-1]
    env = {**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    for name, value in step["env"].items():
        env[name] = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        assert "${{" not in env[name]
    script = tmp_path / "step.sh"
    script.write_text(step["run"])
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
    done = subprocess.run([str(part) for part in argv], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    return done.returncode, done.stdout, (tmp_path / "summary").read_text()


def test_the_action_annotates_what_does_not_hold(root, trace, tmp_path):
    checked("check-jsonschema", "--builtin-schema", "vendor.github-actions", ROOT / "action.yml")
    code, said, summary = action(root, trace, tmp_path, max_peak="1KiB", no_leaks="false")
    assert code == 1 and "::error" in said and "peak" in said
    assert summary.startswith("```\n") and "peak" in summary


def test_the_action_passes_what_holds(root, trace, tmp_path):
    code, said, summary = action(root, trace, tmp_path, max_peak="20GiB", no_leaks="false")
    assert code == 0 and "::error" not in said and summary.endswith("```\n")


def test_the_action_compares_with_a_baseline(root, trace, tmp_path):
    baseline = tmp_path / "memory file.toml"
    run([root / "bin/gpushim", "check", "--save-baseline", baseline, trace], codes=(0, 1))
    code, said, _ = action(root, trace, tmp_path, baseline=str(baseline), no_leaks="false")
    assert code == 0, said


def test_the_image_has_the_tarball(tarball, root):
    lines = [line for line in (PACKAGING / "container/Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["FROM", "ARG", "ARG", "ADD", "RUN", "CMD"]
    values = dict(line.split()[1].split("=") for line in lines if line.startswith("ARG"))
    added = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], lines[3].split()[1])
    assert added.replace("x86_64", os.uname().machine) == tarball.name
    # What RUN does to the folder that ADD makes is what the fixture does.
    assert lines[4].endswith("-${ARCH}-linux-gnu /opt/gpushim") and (root / "lib/gpushim/libgpushim.so").is_file()


def test_the_variables_of_the_job_record_a_program(root, tmp_path):
    path = PACKAGING / "container/job.yaml"
    checked("kubernetes-validate", path)
    pod = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in pod["volumes"]}
    # The image's command copies into this volume.
    assert pod["initContainers"][0]["volumeMounts"] == [{"name": "gpushim", "mountPath": "/gpushim"}]
    folders = {mounts["gpushim"]: str(root), mounts["traces"]: str(tmp_path)}
    env = dict(os.environ)
    for one in container["env"]:
        env[one["name"]] = re.sub(r"^(/\w+)", lambda found: folders[found[1]], one["value"])
    run(PROGRAM, env)
    (trace,) = tmp_path.glob("*.trace")
    report = run([root / "bin/gpushim", "report", trace], codes=(0, 1))
    assert "train.py" in report and "policy off" in report


def test_the_containers_of_the_pod_share_a_limit(root, tmp_path):
    path = PACKAGING / "container/shared-limit.yaml"
    checked("kubernetes-validate", path)
    daemons, pod = yaml.safe_load_all(path.read_text())
    (laid_out,) = daemons["spec"]["template"]["spec"]["volumes"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert volumes["gpushim"]["hostPath"]["path"] == laid_out["hostPath"]["path"]
    train, serve = pod["spec"]["containers"]
    assert train["env"] == serve["env"] and train["volumeMounts"] == serve["volumeMounts"]
    mounts = {one["name"]: one["mountPath"] for one in train["volumeMounts"]}
    assert set(mounts) == set(volumes)
    folders = {mounts["gpushim"]: str(root), mounts["ledger"]: str(tmp_path)}
    env = {one["name"]: re.sub(r"^(/\w+)", lambda found: folders[found[1]], one["value"]) for one in train["env"]}
    run(PROGRAM, {**os.environ, **env})
    assert (tmp_path / "gpu").is_file()
    env.pop("LD_PRELOAD")
    told = run([root / "bin/gpushim", "doctor", "--all"], {**os.environ, **env}, codes=(0, 1))
    assert f"20.0 GiB of each device, shared by {tmp_path}/gpu: processes there 0" in " ".join(told.split()), told


def test_the_task_prolog_has_a_task_recorded(root, tmp_path):
    prolog = root / "share/gpushim/slurm/task-prolog"
    bare = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_PROCID": "3"}
    assert run([prolog], bare) == ""
    asked = {**bare, "RECORD_GPU_MEMORY": str(tmp_path)}
    lines = run([prolog], asked).splitlines()
    # Slurm takes `export NAME=VALUE` as it is, without a shell.
    env = dict(bare, **dict(re.fullmatch(r"export (\w+)=(.*)", line).groups() for line in lines))
    run(PROGRAM, env)
    assert [one.name for one in tmp_path.glob("*.trace")] == ["7-1-3.trace"]
    assert "policy off" in run([root / "bin/gpushim", "report", tmp_path / "7-1-3.trace"], codes=(0, 1))
    assert "export GPUSHIM_POLICY=vmm" in run([prolog], {**asked, "GPUSHIM_POLICY": "vmm"}).splitlines()
    assert run([prolog], {**asked, "LD_PRELOAD": "libdl.so.2"}).splitlines()[0].endswith("libgpushim.so:libdl.so.2")
    lonely = tmp_path / "share/gpushim/slurm/task-prolog"
    lonely.parent.mkdir(parents=True)
    shutil.copy(prolog, lonely)
    assert run([lonely], asked).startswith("print gpushim: ")


STUBS = """
set ModulesCurrentModulefile [lindex $argv 0]
proc module-whatis {text} {}
proc conflict {name} {}
proc prepend-path {name path} { puts "$name=$path" }
source [lindex $argv 0]
ModulesHelp
"""


def test_the_module_file_finds_its_folder(root, tmp_path):
    if shutil.which("tclsh") is None:
        pytest.skip("tclsh is not installed: the module file is not run")
    (tmp_path / "stubs.tcl").write_text(STUBS)
    said = run(["tclsh", tmp_path / "stubs.tcl", root / "share/gpushim/modulefiles/gpushim" / VERSION])
    paths = dict(line.split("=") for line in said.splitlines() if "=" in line)
    assert set(paths) == {"PATH", "MANPATH", "CPATH"} and all(pathlib.Path(path).is_dir() for path in paths.values())
    assert (pathlib.Path(paths["PATH"]) / "gpushim").is_file()
