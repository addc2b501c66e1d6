"""The GPUs of this machine, and the processes that use them."""

from collections.abc import Iterator

from sgpu_decl.agent.host.gpu_users import attempt_of, user_words
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.gpus.devices import Devices, in_words
from sgpu_decl.gpus.health import GpuHealth, GpuUse
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_CHECK = "gpus"
_NOTICEABLE = 1 << 30  # bytes of GPU memory: less than that is what a driver takes for itself


def check_gpus(devices: Devices, health: GpuHealth) -> Iterator[Finding]:
    if devices.trouble or health.trouble:
        yield fail(
            _CHECK,
            f"the NVIDIA driver does not work: {devices.trouble or health.trouble}",
            "`nvidia-smi` says the same; after an upgrade of the driver, restart the machine",
        )
        return
    yield from _visible(devices)
    for use in health.gpus:
        yield from _of_one(use)


def _visible(devices: Devices) -> Iterator[Finding]:
    hidden = f"; `{devices.variable}` hides {devices.hidden} more" if devices.hidden else ""
    if devices.visible:
        yield ok(_CHECK, f"{in_words(devices.visible)}{hidden}")
    elif devices.hidden:
        yield warn(
            _CHECK,
            f"`{devices.variable}` hides all {devices.hidden} GPUs of this machine",
            f"unset `{devices.variable}`, or name devices in it",
        )
    else:
        yield ok(_CHECK, "this machine has no GPU: runs here need `type: CPU`")


def _of_one(use: GpuUse) -> Iterator[Finding]:
    name = f"GPU {use.index}"
    if use.lost:
        yield fail(
            _CHECK,
            f"{name} does not answer: {use.lost}",
            "see `dmesg | grep -i nvrm`; restarting the machine brings most such GPUs back",
        )
        return
    if use.prohibited:
        yield fail(
            _CHECK,
            f"{name} takes no processes: its compute mode is `Prohibited`",
            f"`sudo nvidia-smi -i {use.index} -c DEFAULT`",
        )
    users = [(pid, memory, attempt_of(pid)) for pid, memory in use.processes]
    ours = sorted({run for _, _, run in users if run})
    if ours:
        yield ok(_CHECK, f"{name} is used by {', '.join(ours)}")
    others = [(pid, memory) for pid, memory, run in users if not run]
    if others:
        yield warn(
            _CHECK,
            f"{name} is used by {user_words(others)}",
            "runs that need this GPU wait until it is free; end those processes, or share it: "
            "`backend: {kind: local, share_gpus: true}`",
        )
    elif not users and use.used > _NOTICEABLE:
        yield warn(
            _CHECK,
            f"{size(use.used)} of {size(use.total)} of {name} are used by processes that cannot "
            "be seen from here",
            "they are in another container or of another user: look with `nvidia-smi` on the host",
        )
