"""What sgpu reads of devices is what `nvidia-smi` says of them."""

import pytest

from sgpu_decl.agent.monitor.device_usage import DeviceUsage
from sgpu_decl.gpus.devices import read_nvml
from tests.gpu_machine.conftest import asked

pytestmark = pytest.mark.gpu


def test_names_memory_and_uuids_in_the_order_of_the_bus(gpus: list[dict[str, str]]) -> None:
    report = read_nvml("")
    assert report is not None
    assert not report.trouble
    assert [(one.name, one.uuid) for one in report.devices] == [
        (one["name"], one["uuid"]) for one in gpus
    ]
    for device, one in zip(report.devices, gpus, strict=True):
        # nvidia-smi shows what the driver keeps for itself as memory, too
        assert device.memory == pytest.approx(float(one["memory.total"]) * 2**20, rel=0.02)


@pytest.mark.parametrize("by", ["index", "uuid"])
def test_what_the_monitor_measures(gpus: list[dict[str, str]], by: str) -> None:
    found = DeviceUsage([one[by] for one in gpus]).look()
    told = sorted(
        asked("pci.bus_id", "memory.used", "temperature.gpu", "power.draw"),
        key=lambda one: one["pci.bus_id"],
    )
    assert [one["device"] for one in found] == list(range(len(gpus)))
    for one, gpu, now in zip(found, gpus, told, strict=True):
        assert one["room"] == pytest.approx(float(gpu["memory.total"]), rel=0.02)
        assert one["memory"] == pytest.approx(float(now["memory.used"]), abs=2048)
        assert 0 <= one["utilisation"] <= 100
        assert abs(one["temperature"] - float(now["temperature.gpu"])) <= 15
        if "N/A" not in now["power.draw"]:
            assert one["power"] > 0


def test_no_device_has_an_error(gpus: list[dict[str, str]]) -> None:
    """Of an Xid while this looks, and of memory since the machine was started."""
    for one in DeviceUsage([one["uuid"] for one in gpus]).look():
        assert "xid" not in one
        assert one.get("ecc", 0) == 0
