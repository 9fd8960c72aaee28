"""Metrics by OpenTelemetry's own SDK and names."""

import pytest

MIB = 1 << 20
PROGRAM = """
import driver
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.metrics import hw_metrics as names
from gpushim.integrations.opentelemetry import register

reader = InMemoryMetricReader()
provider = MeterProvider(metric_readers=[reader])
registered = register(provider.get_meter("gpushim"))
driver.start()
driver.step()
data = reader.get_metrics_data()
found = {
    metric.name: [metric.unit, type(metric.data).__name__, [[point.value, dict(point.attributes)] for point in metric.data.data_points]]
    for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics for metric in scope.metrics
}
# Older releases of the conventions have no GPUs.
usage, limit = (getattr(names, f"HW_GPU_MEMORY_{name.upper()}", f"hw.gpu.memory.{name}") for name in ("usage", "limit"))
driver.tell([registered, found, usage, limit])
"""


def test_names_units_and_attributes(program):
    pytest.importorskip("opentelemetry.sdk")
    registered, found, usage, limit = program(PROGRAM, STANDIN_MEMORY="1G").found
    assert registered and {usage, limit} <= set(found)
    unit, kind, [[value, attributes]] = found[usage]
    assert (unit, kind, value) == ("By", "Sum", MIB)
    assert attributes["hw.type"] == "gpu" and attributes["hw.id"].startswith("GPU-") and attributes["hw.vendor"] == "NVIDIA"
    assert found[limit][2][0][0] == 1 << 30
    assert found["gpushim.memory.peak"][1:] == ["Gauge", [[5 * MIB, attributes]]]
    assert found["gpushim.memory.cached"][2][0][0] >= 4 * MIB


def test_without_gpushim_there_is_none(program):
    pytest.importorskip("opentelemetry.sdk")
    done = program(PROGRAM, preload=False)
    assert done.found[:2] == [False, {}] and done.errors.count("gpushim is not preloaded") == 1
