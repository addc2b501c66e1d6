"""The kinds of failures that sgpu knows by name: how each is recognised, whose fault it is, and
what to do. A table; `failure_recognition.py` reads it, and docs/failures.md is written from it.

A form is one way in which a library says the failure. Its `needle` is a text that stands in each of
its lines; the `pattern` is tried only where the needle is. Patterns look at lines (`re.MULTILINE`),
and repeat nothing without a limit that could match in two ways, so that no text makes them slow.
`words` may use the groups of the pattern. A source is where a library's words come from.
"""

from __future__ import annotations

USER = "error"
PLATFORM = "infra"
EITHER = None  # the text does not say whose fault it is, or both can help
_AS_THE_KIND = "as the kind"


class FailureForm:
    """One way in which a failure is said. `blame` and `next_step` are those of the kind, unless the
    form knows better."""

    __slots__ = ("blame", "needle", "next_step", "pattern", "words")

    def __init__(
        self,
        needle: str,
        pattern: str,
        words: str,
        *,
        blame: str | None = _AS_THE_KIND,
        next_step: str | None = None,
    ) -> None:
        self.needle = needle
        self.pattern = pattern
        self.words = words
        self.blame = blame
        self.next_step = next_step


class FailureKind:
    """`blame` is USER, PLATFORM or EITHER. The first form that fits gives the words."""

    __slots__ = ("blame", "forms", "meaning", "name", "next_step", "source")

    def __init__(
        self,
        name: str,
        blame: str | None,
        meaning: str,
        next_step: str,
        source: str,
        forms: tuple[FailureForm, ...] = (),
    ) -> None:
        self.name = name
        self.blame = blame
        self.meaning = meaning
        self.next_step = next_step
        self.source = source
        self.forms = forms

    def blame_of(self, form: FailureForm) -> str | None:
        return self.blame if form.blame == _AS_THE_KIND else form.blame


HOST_OUT_OF_MEMORY = "host_out_of_memory"  # also by what the kernel counted
GPU_XID = "gpu_xid"  # its codes are in `xid_codes.py`

# What stands before the words of an exception, of an error of the system, and of a program. A line
# of a log that warns of something has none of them.
_TYPE = r"^[\w.]{0,200}(?:Error|Exception|SystemExit): "
_SYSTEM = r"^(?:OSError|cannot [^\n:]{1,100}): "
_PROGRAM = r"^(?:/\S{0,200}/)?[a-z][\w.+-]{0,60}: [^\n]{0,300}: "
# https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp
_TRIED = " out of memory. Tried to allocate"
_FULL = _TYPE + r"(?:CUDA|HIP) out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+)"
_FULL_GPU = (
    _FULL + r"\. GPU (?P<gpu>\d*) ?"
    r"has a total capac\w+ of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free\."
)
_ASKED = "{asked} did not fit: GPU {gpu} has {total}, of which {free} were free"
_HELD = r"[^\n]{0,4000}Of the allocated memory (?P<held>[\d.]+ \w+) is allocated by PyTorch"
_SMALLER = (
    "use less memory: a smaller batch, gradient checkpointing, sharding (FSDP), or a GPU with more"
)
# How the CUDA runtime says an error, in an exception of torch or after `what():` of an abort.
_CUDA = r"(?:" + _TYPE + r"|^  what\(\):  |terminated with exception: )CUDA error: "
_CUDA_ERRORS = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_LIBRARY = r"lib(?:cu|nv|nccl)[\w+-]{0,60}\.so(?:\.\w{1,12}){0,6}"

KINDS = (
    FailureKind(
        "cuda_out_of_memory",
        USER,
        "The memory of a GPU is full.",
        _SMALLER,
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        (
            FailureForm(
                _TRIED,
                _FULL_GPU + r"(?=[^\n]{0,4000}\bthis process has (?P<own>[\d.]+ \w+) memory in use)"
                r"[^\n]{0,4000}?Process (?P<pid>\d+) has (?P<other>[\d.]+ GiB) memory in use",
                _ASKED + "; another process, {pid}, had {other}, and this one {own}",
                blame=EITHER,
                next_step="end the other program, or leave `share_gpus` out, so that the run waits "
                "for a free GPU; `sgpu doctor` shows who uses the GPUs",
            ),
            FailureForm(
                _TRIED,
                _FULL_GPU + _HELD + r", and (?P<spare>[\d.]+ GiB) is reserved by PyTorch but "
                r"unallocated[^\n]{0,100} (?P<name>PYTORCH\w{0,20}_CONF)=",
                _ASKED + "; PyTorch used {held} and kept {spare} in pieces that were too small",
                next_step="set `{name}: expandable_segments:True` in `env.variables`, so that the "
                "pieces join; then " + _SMALLER,
            ),
            FailureForm(_TRIED, _FULL_GPU + _HELD, _ASKED + "; PyTorch used {held}"),
            FailureForm(_TRIED, _FULL_GPU, _ASKED),
            FailureForm(
                _TRIED,
                _FULL,
                "{asked} did not fit into the memory of the GPU",
            ),
            FailureForm(
                "CUDA error: out of memory",
                _CUDA + "out of memory",
                "the memory of the GPU is full, and PyTorch had not asked for it: another program "
                "or library has it",
                blame=EITHER,
                next_step="`sgpu doctor` shows who uses the GPUs; then " + _SMALLER,
            ),
        ),
    ),
    FailureKind(
        HOST_OUT_OF_MEMORY,
        USER,
        "The memory of the machine, not that of a GPU, is full, or a limit of the run's group is "
        "reached.",
        "use less memory: fewer or smaller data loaders, data that is read in pieces, checkpoints "
        "that are loaded with `mmap=True`; or a machine with more",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
        (
            FailureForm(
                "DefaultCPUAllocator",
                _TYPE + r"(?:\[enforce fail at [^\n]{0,200}?)?DefaultCPUAllocator: (?:can't "
                r"allocate|not enough) memory: you tried to allocate (?P<asked>\d+) bytes",
                "{asked} bytes did not fit into the memory of the machine",
            ),
            FailureForm(
                "Unable to allocate",
                r"^numpy[\w.]{0,60}MemoryError: Unable to allocate (?P<asked>[\d.]+ \w+)",
                "{asked} did not fit into the memory of the machine",
            ),
            FailureForm(
                "MemoryError", r"^MemoryError\b", "the memory of the machine did not suffice"
            ),
            FailureForm(
                "Cannot allocate memory",
                _SYSTEM + r"\[Errno 12\] Cannot allocate memory",
                "the system had no memory left for this process",
            ),
            FailureForm(
                "std::bad_alloc",
                r"^  what\(\):  std::bad_alloc",
                "native code could not get the memory that it asked for",
            ),
        ),
    ),
    FailureKind(
        "nccl_timeout",
        EITHER,
        "NCCL's watchdog ended a rank, because a collective did not end in time: a rank did not "
        "enter it, entered another one, or the network does not carry it.",
        "look at what the other ranks did: `sgpu logs --rank all`. Ranks must call the same "
        "collectives in the same order, with the same shapes. If a rank works alone for long, as "
        "in an evaluation, give `init_process_group` a longer `timeout`",
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        (
            # https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/TraceUtils.h
            FailureForm(
                "Watchdog caught collective operation timeout",
                r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<op>\w+)[^\n]{0,300}?Timeout\(ms\)="
                r"(?P<limit>\d+)[^\n]{0,200}?(?:\n[^\n]{0,300}){0,3}?caused the desync are:\s{1,9}"
                r"- (?P<cause>[^\n]{1,200})",
                "{op} number {number} did not end within {limit} ms; PyTorch says of the ranks "
                "that caused it: {cause}",
            ),
            FailureForm(
                "Watchdog caught collective operation timeout",
                r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<op>\w+)[^\n]{0,300}?Timeout\(ms\)="
                r"(?P<limit>\d+)[^\n]{0,200}?(?:\n[^\n]{0,300}){0,3}?ranks (?P<ranks>\[[\d, ]+\]) "
                r"are the lagging ranks that caused this timeout",
                "{op} number {number} did not end within {limit} ms: ranks {ranks} never entered a "
                "collective",
            ),
            FailureForm(
                "last enqueued work:",
                r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
                r"OpType=(?P<op>\w+)[^\n]{0,300}?Timeout\(ms\)=(?P<limit>\d+)[^\n]{0,200}\n"
                r"[^\n]{0,300}last enqueued work: (?P<entered>-?\d+), last completed work: "
                r"(?P<completed>-?\d+)",
                "{op} number {number} did not end within {limit} ms; of its group, this rank had "
                "entered the collectives up to {entered} and completed those up to {completed}",
            ),
            FailureForm(
                "Watchdog caught collective operation timeout",
                r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
                r"OpType=(?P<op>\w+)[^\n]{0,300}?Timeout\(ms\)=(?P<limit>\d+)",
                "{op} number {number} did not end within {limit} ms",
            ),
            FailureForm(
                "collective timeout or exception",
                r"due to collective timeout or exception",
                "another rank of the group timed out or failed in a collective",
            ),
        ),
    ),
    FailureKind(
        "nccl_peer_lost",
        EITHER,
        "NCCL lost the connection to another rank: that rank ended, or the network failed.",
        "look for a rank that ended earlier: `sgpu logs --rank all`. If none did, set "
        "`NCCL_DEBUG: INFO` in `env.variables`, and ask who runs the network",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclresult-t",
        (
            FailureForm(
                "remote process exited or there was a network error",
                r"NCCL error[^\n]{0,300}remote process exited or there was a network error"
                r"[^\n]{0,300}\n(?:ncclRemoteError[^\n]{0,300}\n)?Last error:\s?\n"
                r"(?P<error>[^\n]{1,200})",
                "NCCL lost the connection to another rank: {error}",
            ),
            FailureForm(
                "remote process exited or there was a network error",
                r"NCCL error[^\n]{0,300}remote process exited or there was a network error",
                "NCCL lost the connection to another rank",
            ),
        ),
    ),
    FailureKind(
        GPU_XID,
        EITHER,
        "NVIDIA's driver reported an error of a GPU (Xid). Its code says what failed, and whether "
        "the program or the hardware is to blame.",
        "if the hardware is to blame, start the run elsewhere, and tell whoever runs the machine; "
        "if the program is, run it once with `CUDA_LAUNCH_BLOCKING: 1` in `env.variables`",
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        (
            FailureForm(
                "NVRM: Xid",
                r"NVRM: Xid \((?:PCI:)?(?P<bus>[\da-fA-F:.]{1,20})\): (?P<code>\d{1,3})\b",
                "GPU {bus} reported Xid {code}: {xid}",
            ),
        ),
    ),
    FailureKind(
        "gpu_memory_error",
        PLATFORM,
        "The memory of a GPU has an error that ECC cannot correct.",
        "start the run elsewhere, or again once the GPU is reset; tell whoever runs the machine",
        _CUDA_ERRORS,
        (
            FailureForm(
                "uncorrectable ECC error encountered",
                _CUDA + "uncorrectable ECC error encountered",
                "the memory of the GPU has an error that ECC cannot correct",
            ),
        ),
    ),
    FailureKind(
        "cuda_device_assert",
        USER,
        "A check inside of a kernel failed, most often because an index is out of bounds, such as "
        "a label that is no class or a token beyond the vocabulary.",
        "run once with `CUDA_LAUNCH_BLOCKING: 1` in `env.variables`, so that the traceback names "
        "the operation, or on `type: CPU`, which says it in words",
        _CUDA_ERRORS,
        (
            FailureForm(
                "device-side assert triggered",
                _CUDA + "device-side assert triggered",
                "a check inside of a kernel failed; the traceback may name a later operation",
            ),
        ),
    ),
    FailureKind(
        "cuda_illegal_access",
        USER,
        "A kernel used memory that is not its own. This is nearly always a fault of the kernel or "
        "of what it was given, rarely one of the driver or the hardware.",
        "run once with `CUDA_LAUNCH_BLOCKING: 1` in `env.variables`, so that the traceback names "
        "the operation, then under NVIDIA's `compute-sanitizer`",
        _CUDA_ERRORS,
        (
            FailureForm(
                "an illegal memory access was encountered",
                _CUDA + "an illegal memory access was encountered",
                "a kernel used memory that is not its own; the traceback may name a later "
                "operation",
            ),
        ),
    ),
    FailureKind(
        "cuda_driver_too_old",
        EITHER,
        "The driver of the machine is older than the CUDA that a package was built for.",
        "use a build of the package for an older CUDA, which for PyTorch has another index at "
        "https://download.pytorch.org/whl/, or have the driver updated",
        "https://docs.nvidia.com/deploy/cuda-compatibility/",
        (
            # https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDAFunctions.cpp
            FailureForm(
                "driver on your system is too old",
                _TYPE + r"[^\n]{0,200}The NVIDIA driver on your system is too old \(found version "
                r"(?P<major>\d\d)0(?P<minor>\d)0\)",
                "the driver supports CUDA {major}.{minor} at most, which is older than that of "
                "PyTorch",
            ),
            FailureForm(
                "CUDA driver version is insufficient",
                r"^(?![^\n]{0,400}Warning: )[^\n]{0,400}CUDA driver version is insufficient for "
                r"CUDA runtime version",
                "the driver is older than the CUDA that the program was built for",
            ),
            FailureForm(
                "PTX was compiled with an unsupported toolchain",
                _CUDA + "the provided PTX was compiled with an unsupported toolchain",
                "a kernel was built by a newer CUDA than the driver knows",
            ),
        ),
    ),
    FailureKind(
        "cuda_driver_missing",
        PLATFORM,
        "The program looked for an NVIDIA driver, and there is none.",
        "see `sgpu doctor`. A container needs `--gpus all` and the NVIDIA Container Toolkit; "
        "without a GPU, say `type: CPU`",
        "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDAFunctions.cpp",
        (
            FailureForm(
                "Found no NVIDIA driver",
                _TYPE + r"Found no NVIDIA driver on your system",
                "PyTorch found no NVIDIA driver on this machine",
            ),
            FailureForm(
                "libcuda.so.1: cannot open shared object file",
                r"libcuda\.so\.1: cannot open shared object file",
                "the library of the driver, `libcuda.so.1`, is not on this machine",
            ),
        ),
    ),
    FailureKind(
        "cuda_not_ready",
        PLATFORM,
        "The GPUs are there, and the service that connects them by NVLink (Fabric Manager) has not "
        "set them up.",
        "have `nvidia-fabricmanager` started, in the version of the driver; or start the run "
        "elsewhere",
        _CUDA_ERRORS,
        (
            FailureForm(
                "Error 802: system not yet initialized",
                _TYPE + r"[^\n]{0,300}Error 802: system not yet initialized",
                "CUDA says that the system is not initialized (802)",
            ),
        ),
    ),
    FailureKind(
        "cuda_library_missing",
        USER,
        "A library of CUDA that a package needs, such as cuDNN, is not in the environment, or in "
        "another version.",
        "install the package that brings it, such as `nvidia-cudnn-cu12`, in the version that the "
        "package asks for, and remove others from `LD_LIBRARY_PATH`",
        "https://docs.nvidia.com/deeplearning/cudnn/installation/latest/linux.html",
        (
            FailureForm(
                "cannot open shared object file",
                r"(?:^\w{1,60}Error: |error while loading shared libraries: )"
                rf"(?P<library>{_LIBRARY}): cannot open shared object file",
                "`{library}` was not found",
            ),
            FailureForm(
                "Could not load library lib",
                rf"^Could not load library (?P<library>{_LIBRARY})",
                "`{library}` could not be loaded",
            ),
            FailureForm(
                "Unable to load any of {lib",
                rf"Unable to load any of \{{(?P<library>{_LIBRARY})",
                "`{library}` and its other versions could not be loaded",
            ),
        ),
    ),
    FailureKind(
        "torch_without_cuda",
        USER,
        "The code uses a GPU, and PyTorch in the environment is a build for processors alone.",
        "install a build with CUDA (https://pytorch.org/get-started/locally/), or say `type: CPU` "
        "and use the device `cpu` and the backend `gloo`",
        "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py",
        (
            FailureForm(
                "Torch not compiled with CUDA enabled",
                _TYPE + r"Torch not compiled with CUDA enabled",
                "PyTorch in this environment is a build without CUDA",
            ),
            FailureForm(
                "Distributed package doesn't have NCCL",
                _TYPE + r"Distributed package doesn't have NCCL built in",
                "PyTorch in this environment is a build without NCCL",
            ),
        ),
    ),
    FailureKind(
        "cuda_no_kernel_image",
        USER,
        "A package has no kernels for this type of GPU: it was built for others, older or newer.",
        "use a build of the package that knows this GPU, which for PyTorch has another index at "
        "https://download.pytorch.org/whl/, build it with `TORCH_CUDA_ARCH_LIST`, or choose "
        "another `type`",
        _CUDA_ERRORS,
        (
            FailureForm(
                "no kernel image is available for execution",
                _TYPE + r"[^\n]{0,200}no kernel image is available for execution on the device",
                "a package has no kernels for this type of GPU",
            ),
        ),
    ),
    FailureKind(
        "numpy_abi_mismatch",
        USER,
        "A package was built for another version of NumPy than the one in the environment.",
        "update the package that the traceback names; or, for one that was built for NumPy 1, use "
        "`numpy<2`",
        "https://numpy.org/doc/stable/user/troubleshooting-importerror.html",
        (
            FailureForm(
                "size changed, may indicate binary incompatib",
                _TYPE + r"(?P<name>numpy\.\w{1,40}) size changed, may indicate binary incompatib"
                r"ility\. Expected (?P<expected>\d+) from C header, got (?P<found>\d+)",
                "a package was built for another NumPy: `{name}` has {found} bytes here, and "
                "{expected} there",
            ),
            FailureForm(
                "compiled against ",
                _TYPE + r"module (?:was )?compiled against (?:NumPy )?(?:C-)?A[BP]I version",
                "a package was built for another NumPy",
            ),
            FailureForm(
                "_ARRAY_API not found",
                r"^AttributeError: _ARRAY_API not found",
                "a package was built for NumPy 1",
            ),
            FailureForm(
                "failed to import",
                r"^ImportError: numpy\.(?:_core|core)\.(?:multiarray|umath) failed to import",
                "a package was built for another NumPy",
            ),
        ),
    ),
    FailureKind(
        "port_in_use",
        USER,
        "The program listens on a port that another program has.",
        "use `MASTER_ADDR` and `MASTER_PORT`, which sgpu sets to a free port, or port 0, which the "
        "system replaces by a free one",
        "https://docs.pytorch.org/docs/stable/distributed.html#tcpstore",
        (
            # https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp
            FailureForm(
                "EADDRINUSE",
                _TYPE + r"The server socket has failed to listen on any local network address\. "
                r"port: (?P<port>\d+)[^\n]{0,200}EADDRINUSE",
                "port {port} is in use",
            ),
            FailureForm(
                "Address already in use",
                _TYPE + r"The server socket has failed to listen [^\n]{0,120}\[::\]:(?P<port>\d+) "
                r"\(errno: 98 ",
                "port {port} is in use",
            ),
            FailureForm(
                "address already in use",
                r"^OSError: \[Errno 98\] [^\n]{0,100}\('[^'\n]{1,60}', (?P<port>\d+)[^\n]{0,60}\): "
                r"address already in use",
                "port {port} is in use",
            ),
            FailureForm(
                "is taken",
                r"^port (?P<port>\d+) is taken",
                "port {port} is in use",
                next_step="leave `launch.master_port` out: sgpu then takes a free port",
            ),
            FailureForm(
                "ddress already in use",
                r"^OSError: \[Errno 98\] [^\n]{0,200}ddress already in use",
                "the port that the program listens on is in use",
            ),
            FailureForm(
                "EADDRINUSE",
                _TYPE + r"[^\n]{0,200}EADDRINUSE",
                "the port that the program listens on is in use",
            ),
        ),
    ),
    FailureKind(
        "shared_memory_full",
        EITHER,
        "`/dev/shm`, through which data loaders and NCCL pass data, is full. Docker gives a "
        "container 64 MB of it.",
        "start the container with `--ipc host` or `--shm-size 16g`, or use fewer workers and "
        "smaller batches in data loaders; `sgpu doctor` shows its size",
        "https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",
        (
            # https://github.com/pytorch/pytorch/blob/main/torch/csrc/DataLoader.cpp
            FailureForm(
                "is killed by signal: Bus error",
                r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: Bus error",
                "a worker of a data loader, process {pid}, found no room in `/dev/shm`",
            ),
            FailureForm(
                "Unexpected bus error encountered in worker",
                r"^ERROR: Unexpected bus error encountered in worker",
                "a worker of a data loader found no room in `/dev/shm`",
            ),
            FailureForm(
                "unable to write to file </torch_",
                _TYPE + r"unable to write to file </torch_[^\n]{0,80}>: No space left on device",
                "PyTorch found no room in `/dev/shm` for a tensor",
            ),
            FailureForm(
                "No space left on device: '/dev/shm",
                r"^OSError: \[Errno 28\] No space left on device: '/dev/shm",
                "the program found no room in `/dev/shm`",
            ),
            # https://github.com/NVIDIA/nccl/blob/master/src/misc/shmutils.cc
            FailureForm(
                "Error while creating shared memory segment",
                r"Error while creating shared memory segment (?P<file>/dev/shm/\S{1,60}) "
                r"\(size (?P<size>\d+)\), error: No space left on device",
                "NCCL found no room in `/dev/shm` for {size} bytes",
            ),
        ),
    ),
    FailureKind(
        "no_disk_space",
        EITHER,
        "A disk is full.",
        "free space, or write elsewhere: `df -h` shows the disks, `sgpu gc` deletes what old "
        "attempts left",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
        (
            FailureForm(
                "No space left on device: '",
                r"\[Errno 28\] No space left on device: '(?P<path>[^'\n]{1,300})'",
                "there is no space left on the disk of `{path}`",
            ),
            FailureForm(
                "No space left on device",
                rf"(?:{_SYSTEM}\[Errno 28\] |{_PROGRAM}|{_TYPE}[^\n]{{0,300}})No space left on "
                r"device",
                "there is no space left on the disk that the program wrote to",
            ),
        ),
    ),
    FailureKind(
        "disk_quota",
        EITHER,
        "The user has reached the quota of a file system, of space or of files.",
        "delete what is not needed, write elsewhere, or ask for more: `quota -s` shows the limits",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
        (
            FailureForm(
                "Disk quota exceeded: '",
                r"\[Errno 122\] Disk quota exceeded: '(?P<path>[^'\n]{1,300})'",
                "the quota of the file system of `{path}` is reached",
            ),
            FailureForm(
                "Disk quota exceeded",
                rf"(?:{_SYSTEM}\[Errno 122\] |{_PROGRAM}|{_TYPE}[^\n]{{0,300}})Disk quota "
                r"exceeded",
                "the quota of the file system that the program wrote to is reached",
            ),
        ),
    ),
    FailureKind(
        "volume_permission",
        USER,
        "The user or service principal of the run may not use a volume of Unity Catalog.",
        "have an owner of the volume grant `USE CATALOG`, `USE SCHEMA` and `READ VOLUME`, and "
        "`WRITE VOLUME` to write",
        "https://docs.databricks.com/aws/en/volumes/privileges",
        (
            FailureForm(
                ": '/Volumes",
                r"^PermissionError: \[Errno 13?\] [^\n]{1,40}: '(?P<path>/Volumes[^'\n]{0,300})'",
                "the run may not use `{path}`",
            ),
            FailureForm(
                "/Volumes/",
                r"^\w{1,60}: "
                r"[^\n]{0,60}['\u2018]?(?P<path>/Volumes/[^'\u2019\n:]{1,300})['\u2019]?: "
                r"Permission denied",
                "the run may not use `{path}`",
            ),
            FailureForm(
                "User does not have",
                r"^[\w.]{1,200}: [^\n]{0,200}User does not have (?P<privilege>READ|WRITE) VOLUME",
                "the run lacks the privilege `{privilege} VOLUME`",
            ),
        ),
    ),
    FailureKind(
        "file_permission",
        USER,
        "The user of the run may not read or write a file or a folder.",
        "change its owner or mode (`ls -ld`), or write to `SGPU_OUTPUT_DIR`, which is the run's "
        "own",
        "https://man7.org/linux/man-pages/man3/errno.3.html",
        (
            FailureForm(
                "Permission denied: '",
                r"^PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^'\n]{1,300})'",
                "the run may not use `{path}`",
            ),
            FailureForm(
                "Read-only file system: '",
                r"^OSError: \[Errno 30\] Read-only file system: '(?P<path>[^'\n]{1,300})'",
                "`{path}` is on a file system that is read-only",
            ),
            FailureForm(
                ": Permission denied",
                r"^(?:\w{1,60}: cannot [^\n]{0,40}['\u2018]|bash: line \d+: "
                r"(?=/))(?P<path>[^'\u2019:\n]{1,300})['\u2019]?: Permission denied",
                "the run may not use `{path}`",
            ),
        ),
    ),
    FailureKind(
        "gated_model",
        USER,
        "A model or data set on Hugging Face is gated, and the run has no token of somebody who "
        "was given access.",
        "ask for access on its page, and pass a token: `env: {secrets: {HF_TOKEN: env:HF_TOKEN}}`",
        "https://huggingface.co/docs/hub/models-gated",
        (
            # https://github.com/huggingface/transformers/blob/main/src/transformers/utils/hub.py
            FailureForm(
                "You are trying to access a gated repo",
                _TYPE
                + r"You are trying to access a gated repo\.\s{1,9}Make sure to have access to "
                r"it at https://huggingface\.co/(?P<model>[\w./-]{1,200}?)\.?\s",
                "`{model}` is gated, and the run may not read it",
            ),
            FailureForm(
                "You are trying to access a gated repo",
                _TYPE + r"You are trying to access a gated repo",
                "the run may not read a gated model or data set of Hugging Face",
            ),
            # https://github.com/huggingface/huggingface_hub/blob/main/src/huggingface_hub/utils/_http.py
            FailureForm(
                "GatedRepoError",
                r"^[\w.]{0,100}GatedRepoError: [^\n]{0,300}\n{1,3}Cannot access gated repo for url "
                r"https://huggingface\.co/(?:api/)?(?:models/)?(?P<model>[\w.-]{1,100}/[\w.-]{1,100})",
                "`{model}` is gated, and the run may not read it",
            ),
            FailureForm(
                "GatedRepoError",
                r"^[\w.]{0,100}GatedRepoError\b",
                "the run may not read a gated model or data set of Hugging Face",
            ),
        ),
    ),
    FailureKind(
        "missing_package",
        USER,
        "A package or module that the code imports is not in the environment of the ranks.",
        "add the package to `env.dependencies`, or install it where the ranks run; a module of "
        "your own must be in the code: `sgpu plan --files`",
        "https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError",
        (
            FailureForm(
                "ModuleNotFoundError: No module named",
                r"^ModuleNotFoundError: No module named '(?P<module>(?P<package>\w{1,100})\.[\w.]"
                r"{1,200})'",
                "the module `{module}` was not found: the package `{package}` is missing, or has "
                "another version",
            ),
            FailureForm(
                "ModuleNotFoundError: No module named",
                r"^ModuleNotFoundError: No module named '(?P<package>[^'\n]{1,200})'",
                "the package or module `{package}` is not in the environment of the ranks",
            ),
            FailureForm(
                "No module named",
                r"^\S{0,300}python[\d.]*: No module named '?(?P<package>[\w.]{1,200})'?$",
                "the package or module `{package}` is not in the environment of the ranks",
            ),
            FailureForm(
                "PackageNotFoundError",
                r"^[\w.]{0,60}PackageNotFoundError: No package metadata was found for "
                r"(?P<package>[\w.-]{1,100})",
                "the package `{package}` is not in the environment of the ranks",
            ),
        ),
    ),
    FailureKind(
        "nan_loss",
        USER,
        "The program ended itself because the loss or the gradients were no longer finite.",
        "lower the learning rate or warm it up, clip gradients, use bf16 instead of fp16, and look "
        "for bad samples; `torch.autograd.set_detect_anomaly(True)` names the operation",
        "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",
        (
            # https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/engine.cpp
            FailureForm(
                "returned nan values in its",
                _TYPE + r"Function '(?P<function>\w{1,100})' returned nan values in its "
                r"(?P<number>\d+)th output",
                "`{function}` returned NaN in its output {number} (anomaly detection)",
            ),
            # https://github.com/pytorch/pytorch/blob/main/torch/nn/utils/clip_grad.py
            FailureForm(
                "non-finite, so it cannot be clipped",
                _TYPE + r"The total norm [^\n]{0,200} is non-finite, so it cannot be clipped",
                "the norm of the gradients is not finite, and `error_if_nonfinite` was asked for",
            ),
            # https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/utilities/finite_checks.py
            FailureForm(
                "Detected nan and/or inf values in",
                _TYPE + r"Detected nan and/or inf values in `(?P<name>[^`\n]{1,200})`",
                "the parameter `{name}` has values that are not finite",
            ),
            # https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/fp16/loss_scaler.py
            FailureForm(
                "oss scale",
                _TYPE + r"(?:Current loss scale already at minimum|Minimum loss scale reached)",
                "the loss scale of fp16 is at its minimum, and the gradients still overflow",
            ),
            # https://github.com/NVIDIA/Megatron-LM/blob/main/pretrain_gpt.py
            FailureForm(
                "in local forward loss calculation",
                _TYPE + r"[^\n]{0,300}found (?P<value>NaN|Inf) in local forward loss calculation",
                "the loss of a rank was {value}",
            ),
            # https://github.com/facebookresearch/detr/blob/main/engine.py
            FailureForm(
                ", stopping training",
                r"^Loss is (?P<value>nan|-?inf), stopping training",
                "the loss was {value}, and the program stopped",
            ),
            FailureForm(
                "oss",
                _TYPE
                + r"[^\n]{0,200}\b[Ll]oss\b[^\n'\"]{0,60}?\b(?P<value>[Nn]a[Nn]|[Ii]nf(?:inite"
                r"|inity)?|(?:non-|not )finite)\b",
                "the loss was {value}, and the program stopped",
            ),
        ),
    ),
)
"""In the order in which they are looked for: of two that a text names at the same place, the first
counts."""
