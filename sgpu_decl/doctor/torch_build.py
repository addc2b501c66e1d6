"""Which CUDA a torch was built for, read from its files: importing torch takes seconds."""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.config.loaded import LoadedRun
from sgpu_decl.doctor.interpreter_checks import rank_interpreters
from sgpu_decl.gpus.health import GpuHealth
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.planning.project import Project

_CHECK = "torch"

# The oldest driver for all CUDA of a major version: table 1 of
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_OLDEST_DRIVER = {11: "450.80.02", 12: "525", 13: "580"}

# By the major number of a GPU's compute capability, the first CUDA that compiles for it:
# https://docs.nvidia.com/cuda/hopper-compatibility-guide and its siblings for Ampere and Blackwell.
# A build may carry PTX, which newer GPUs compile; the official ones seldom do.
_FIRST = {8: (11, 0), 9: (11, 8), 10: (12, 8), 12: (12, 8)}

# CUDA 13 compiles for no GPU before Turing:
# https://developer.nvidia.com/blog/navigating-gpu-architecture-support-a-guide-for-nvidia-cuda-developers
_TURING, _WITHOUT_OLDER = 75, (13, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """What `torch/version.py` says. `cuda` and `hip` are versions, empty without support."""

    version: str
    cuda: str = ""
    hip: str = ""


def check_torch(
    runs: tuple[LoadedRun, ...], project: Project, gpus: GpuHealth
) -> Iterator[Finding]:
    """Compare the torch of each interpreter with the driver and the GPUs of this machine."""
    executables = rank_interpreters(runs, project)
    for executable in executables:
        where = "" if len(executables) == 1 else f" of `{executable}`"
        build = torch_build(executable)
        if build is None:
            yield ok(_CHECK, f"torch{where} is not installed in `{executable}`: ranks have none")
        else:
            yield _findings_of(build, where, gpus)


def _findings_of(build: TorchBuild, where: str, gpus: GpuHealth) -> Finding:
    name = f"torch {build.version}{where}"
    if build.hip:
        return ok(_CHECK, f"{name} is built for ROCm {build.hip}")
    if not build.cuda:
        if gpus.driver is None:
            return ok(_CHECK, f"{name} is built for CPUs; this machine has no NVIDIA driver")
        return warn(
            _CHECK,
            f"{name} is built for CPUs: ranks cannot use the GPUs of this machine",
            "install a build for CUDA: https://pytorch.org/get-started/locally",
        )
    if gpus.cuda is None:
        missing = "this machine has no NVIDIA driver"
        return ok(_CHECK, f"{name} is built for CUDA {build.cuda}, and {missing}: ranks use CPUs")
    newest = ".".join(map(str, gpus.cuda))
    text = f"{name} is built for CUDA {build.cuda}; driver {gpus.driver} has CUDA {newest}"
    major = build.cuda.partition(".")[0]
    if major.isdigit() and int(major) > gpus.cuda[0]:
        oldest = _OLDEST_DRIVER.get(int(major))
        driver = f"a driver of {oldest} or newer" if oldest else "a newer driver"
        return fail(
            _CHECK,
            f"{text}, which cannot run it",
            f"install {driver}, or a torch that is built for CUDA {gpus.cuda[0]}",
        )
    for use in gpus.gpus:
        if (minimum := _other_cuda(build.cuda, use.capability)) is not None:
            return warn(
                _CHECK,
                f"{text}; GPU {use.index} ({use.name}) needs {minimum}: kernels may be missing",
                f"install a torch that is built for {minimum}",
            )
    return ok(_CHECK, text)


def _other_cuda(cuda: str, capability: int | None) -> str | None:
    """The CUDA that compiles for a GPU, if that of a build does not."""
    parts = cuda.split(".")[:2]
    if capability is None or not all(part.isdigit() for part in parts):
        return None
    has = tuple(map(int, parts))
    first = _FIRST.get(capability // 10)
    if first is not None and has < first:
        return f"CUDA {first[0]}.{first[1]} or newer"
    if capability < _TURING and has >= _WITHOUT_OLDER:
        return "CUDA 12.9 or older"
    return None


def torch_build(executable: str) -> TorchBuild | None:
    """What is known of the torch that an interpreter imports; `None` where none is found."""
    for folder in _torch_folders(executable):
        try:
            text = (folder / "version.py").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        constants = _constants(text)
        if "__version__" in constants:
            return TorchBuild(
                version=constants["__version__"],
                cuda=constants.get("cuda", ""),
                hip=constants.get("hip", ""),
            )
    return None


def _torch_folders(executable: str) -> Iterator[Path]:
    if executable == sys.executable:
        spec = importlib.util.find_spec("torch")  # of a top-level package: nothing is imported
        yield from map(Path, (spec and spec.submodule_search_locations) or ())
        return
    prefix = Path(os.path.abspath(executable)).parent.parent
    for folder in ("lib", "lib64"):
        for kind in ("site-packages", "dist-packages"):
            yield from sorted(prefix.glob(f"{folder}/python3*/{kind}/torch"))


def _constants(text: str) -> dict[str, str]:
    """The texts that a module assigns to names at its top."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    constants: dict[str, str] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            constants |= {
                target.id: value.value for target in targets if isinstance(target, ast.Name)
            }
    return constants
