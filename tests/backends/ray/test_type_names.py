"""The names of types are those that Ray gives to nodes."""

import pytest

from sgpu_decl.backends.ray.planning.launch_placement import given_name, names_of_type
from sgpu_decl.model.gpu import GPUType, type_of_device

KINDS = [kind for kind in GPUType if kind.memory]
# What drivers call devices, with a device of each way of writing.
DEVICES = (
    "NVIDIA A10", "NVIDIA A10G", "Tesla T4", "NVIDIA T4G", "Tesla V100-SXM2-16GB", "Tesla P4",
    "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA L40S",
    "NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA RTX A6000", "NVIDIA TITAN V",
    "NVIDIA TITAN RTX", "NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4070 Ti SUPER",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
)  # fmt: skip


@pytest.mark.parametrize("ray", [(2, 49), (2, 60)])
def test_each_name_is_read_as_its_type(ray: tuple[int, int]) -> None:
    for kind in KINDS:
        assert type_of_device(given_name(kind)) is kind
        for name in names_of_type(kind, ray):
            assert type_of_device(name) is kind


def test_a_size_has_a_name_that_is_given_by_hand() -> None:
    assert (names_of_type(GPUType.A100_80GB, (2, 60)), given_name(GPUType.A100_80GB)) == (
        (),
        "A100-80G",
    )
    assert names_of_type(GPUType.A100, (2, 60)) == ("A100",)


def test_a_name_that_two_models_share_is_none_of_either() -> None:
    for kind in (GPUType.RTX_6000_ADA, GPUType.QUADRO_RTX_6000):
        assert names_of_type(kind, (2, 60)) == ()


def test_old_ray_calls_all_cards_of_workstations_alike() -> None:
    assert names_of_type(GPUType.RTX_4090, (2, 49)) == ()
    assert names_of_type(GPUType.RTX_4090, (2, 60)) == ("GeForce-RTX-4090",)


@pytest.mark.ray
def test_ray_itself_gives_these_names_to_devices() -> None:
    from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager

    for device in DEVICES:
        name = NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(device)
        kind = type_of_device(device)
        assert kind is not None, device
        assert name in names_of_type(kind.family or kind, (2, 60)), device


@pytest.mark.ray
def test_all_names_that_ray_knows_are_known() -> None:
    from ray._private.accelerators.amd_gpu import amd_product_dict
    from ray.util import accelerators

    constants = {name: getattr(accelerators, name) for name in dir(accelerators)}
    nvidia = [value for name, value in constants.items() if name.startswith("NVIDIA_")]
    instinct = [value for name, value in constants.items() if name.startswith("AMD_INSTINCT")]
    instinct += [value for value in amd_product_dict.values() if "Instinct" in value]
    for name in {*nvidia, *instinct}:
        kind = type_of_device(name)
        assert kind is not None, name
        assert name in (*names_of_type(kind, (2, 60)), given_name(kind)), name
