"""Ray's workers, recorded as docs/recipes.md says. Ray is not among the requirements: `--python` names an environment with it."""

import pytest

import gpushim

pytest.importorskip("ray", reason="Ray is not installed: its recipe is not run")
JOB = """
import os, sys
import driver
import ray

@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, path):
        sys.path.insert(0, path)
        import driver
        driver.start()
    def step(self):
        import driver
        driver.step()
        return os.getpid()

library, traces = LIBRARY, os.getcwd() + "/%h-%p.trace"
variables = {"LD_PRELOAD": library, "GPUSHIM_POLICY": "off", "GPUSHIM_TRACE": traces, "GPUSHIM_STACKS": "all"}
ray.init(num_cpus=2, include_dashboard=False, **({"runtime_env": {"env_vars": variables}} if library else {}))
workers = [Worker.remote(os.path.dirname(driver.__file__)) for _ in range(2)]
driver.tell(ray.get([worker.step.remote() for worker in workers]))
ray.shutdown()
"""


def traces_of(done, folder):
    return sorted(int(path.stem.rsplit("-", 1)[1]) for path in folder.glob("*-*.trace")) == sorted(done.found)


def test_workers_of_a_runtime_environment(program, tmp_path):
    library = gpushim.command()[: -len("gpushim")] + "libgpushim.so"
    assert traces_of(program(JOB.replace("LIBRARY", repr(library)), preload=False), tmp_path)


def test_workers_of_a_program_under_gpushim_run(program, tmp_path):
    done = program(JOB.replace("LIBRARY", "None"), GPUSHIM_TRACE=str(tmp_path / "%h-%p.trace"))
    assert traces_of(done, tmp_path)
