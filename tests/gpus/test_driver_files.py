"""GPUs from the files of drivers. What the files hold is as drivers write them; the devices are
not there, so no command line can show this here."""

from pathlib import Path

from sgpu_decl.gpus.devices import amd_devices, nvidia_devices
from sgpu_decl.model.gpu import GPUType

# /proc/driver/nvidia/gpus/0000:0f:00.0/information
INFORMATION = """Model: \t\t {model}
IRQ:   \t\t 168
GPU UUID: \t GPU-{minor:08}-73cd-5b5c-b1e9-f9d0f2a41e2c
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
Bus Location: \t {bus}
Device Minor: \t {minor}
GPU Excluded:\t No
"""


def nvidia(folder: Path, here: list[int], **buses: tuple[int, str]) -> list[tuple[str, str]]:
    dev, driver = folder / "dev", folder / "gpus"
    dev.mkdir()
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in here)]:
        (dev / name).touch()
    for bus, (minor, model) in buses.items():
        (driver / bus).mkdir(parents=True)
        text = INFORMATION.format(model=model, minor=minor, bus=bus)
        (driver / bus / "information").write_text(text)
    return [(device.index, device.name) for device in nvidia_devices(dev, driver)]


def test_devices_are_numbered_in_the_order_of_the_bus_not_of_their_minors(tmp_path: Path) -> None:
    buses = {"0000:0f:00.0": (1, "NVIDIA A100-SXM4-80GB"), "0000:07:00.0": (0, "Tesla T4"),
             "0000:03:00.0": (2, "NVIDIA L4")}  # fmt: skip
    assert nvidia(tmp_path, [0, 1, 2], **buses) == [
        ("0", "NVIDIA L4"), ("1", "Tesla T4"), ("2", "NVIDIA A100-SXM4-80GB"),
    ]  # fmt: skip


def test_a_container_has_the_devices_that_it_was_given(tmp_path: Path) -> None:
    buses = {f"0000:0{minor}:00.0": (minor, f"GPU {minor}") for minor in range(4)}
    assert nvidia(tmp_path, [2, 3], **buses) == [("0", "GPU 2"), ("1", "GPU 3")]


def test_devices_without_a_name_are_counted(tmp_path: Path) -> None:
    assert nvidia(tmp_path, [3, 5]) == [("0", ""), ("1", "")]


def test_devices_of_amd(tmp_path: Path) -> None:
    """Node 0 is the processor. Nodes are counted as numbers, not as text."""
    dev, nodes = tmp_path / "dev", tmp_path / "nodes"
    dev.mkdir()
    for number, device in [(0, 0), (2, 0x74A1), (10, 0x1234)]:
        node = nodes / str(number)
        (node / "mem_banks" / "0").mkdir(parents=True)
        simd, vendor = (1216, 4098) if device else (0, 0)
        (node / "properties").write_text(
            f"cpu_cores_count 0\nsimd_count {simd}\nvendor_id {vendor}\ndevice_id {device}\n"
        )
        (node / "mem_banks" / "0" / "properties").write_text(
            "heap_type 1\nsize_in_bytes 206141652992\nflags 0\n"
        )
    assert amd_devices(dev, nodes) == ()
    (dev / "kfd").touch()
    known, unknown = amd_devices(dev, nodes)
    assert (known.index, known.kind, str(known)) == (
        "0", GPUType.MI300X, "AMD Instinct MI300X (192 GB)",
    )  # fmt: skip
    assert (unknown.index, unknown.name, unknown.may_be(GPUType.MI300X)) == ("1", "", True)
