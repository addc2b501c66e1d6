"""The `backend` block of a cluster with Slurm."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from sgpu_decl.backends.box.host_option import HostName
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.block import Flag, Positive
from sgpu_decl.config.text_types import problem
from sgpu_decl.model.gpu import GPUType, type_of_name

_OWN = (
    "array", "chdir", "comment", "constraint", "dependency", "error", "exclusive", "export",
    "export-file", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "input",
    "job-name", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output",
    "parsable", "partition", "account", "qos", "requeue", "signal", "test-only", "time", "wait",
    "wrap",
)  # fmt: skip
"""Options of sbatch that sgpu sets, or that would change what it relies on."""


def _option(text: str) -> str:
    name = text.partition("=")[0].removeprefix("--")
    if not text.startswith("--") or not name or not text.isprintable():
        raise problem(
            "bad_slurm_option", "{path} is no option", "write it as in `--reservation=team`"
        )
    # sbatch takes the beginning of a name for the name.
    own = next((one for one in _OWN if one.startswith(name)), None)
    if own is not None:
        raise problem(
            "bad_slurm_option",
            f"{{path}} is `--{own}`, which sgpu sets itself",
            "a field of the run, or of `backend`, says the same",
        )
    return text


def _name(text: str) -> str:
    if not text or not text.isprintable() or " " in text:
        raise problem("bad_slurm_option", "{path} is no name", "write it as `sinfo` shows it")
    return text


def _storage(path: str) -> str:
    # sbatch replaces `%` and `\` in the path of a log.
    if not path.startswith(("/", "~/")) or ".." in path.split("/") or set(path) & set("%\\\n"):
        raise problem(
            "bad_path", "{path} must be an absolute path without `..` and `%`, not {given}",
            "begin with / or ~/",
        )  # fmt: skip
    return path.rstrip("/") or "/"


def _mount(path: str) -> str:
    # Runtimes separate folders by a comma, and their parts by a colon.
    if not path.startswith("/") or ".." in path.split("/") or set(path) & set(",:\n"):
        raise problem(
            "bad_path", "{path} must be an absolute path without `..`, `,` and `:`, not {given}",
            "begin with /",
        )  # fmt: skip
    return path


def _word(text: str) -> str:
    if text.startswith("-"):
        raise problem("bad_slurm_option", "{path} begins with a dash", "write the name alone")
    return _name(text)


def _gpu_name(name: str) -> str:
    if type_of_name(name) in (None, GPUType.CPU, GPUType.GPU):
        raise problem("unknown_gpu_type", "{path} is no type of GPU", "see `sgpu gpus --all`")
    return name


Name = Annotated[str, AfterValidator(_name)]
Word = Annotated[str, AfterValidator(_word)]


class SlurmOptions(BackendOptions):
    """Ranks run as a job of Slurm."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "time": "`timeout` of the run replaces it",
        "nodes": "`gpus_per_node` decides it, with `gpus` of the run",
        "gres": "`type` and `gpus` of the run replace it",
        "job_name": "jobs have the name of their run",
    }

    partition: Name | None = Field(None, description="Slurm: the partition, or several: `a,b`.")
    account: Name | None = Field(None, description="Slurm: the account that is charged.")
    qos: Name | None = Field(None, description="Slurm: the quality of service.")
    storage: Annotated[str, AfterValidator(_storage)] = Field(
        "~/.local/share/sgpu/slurm",
        description="Slurm: a folder that the login node and all nodes have under the same path.",
    )
    gpus_per_node: Positive | None = Field(
        None,
        description="Slurm: the number of ranks on a node. Default: the largest number that enough "
        "nodes have GPUs for.",
    )
    constraint: Name | None = Field(None, description="Slurm: features that nodes must have.")
    exclusive: Flag = Field(default=False, description="Slurm: whether nodes are given as a whole.")
    chain: Positive = Field(
        1,
        description="Slurm: how often a job may run up to its time limit: ranks save before each "
        "end, and Slurm starts the job again. It needs `resume: auto`, and takes a run past the "
        "time that its partition gives; `timeout` is that of all together.",
    )
    options: list[Annotated[str, AfterValidator(_option)]] = Field(
        [], description="Slurm: more options of sbatch, such as `--reservation=team`."
    )
    login: HostName | None = Field(
        None,
        description="Slurm: a login node, as `ssh` takes it: `user@host`, or a name of "
        "`~/.ssh/config`. Default: this machine is one.",
    )
    python: str | None = Field(
        None,
        description="Slurm: the Python of nodes, 3.10 or newer, that sgpu runs by there, and ranks "
        "without an environment. By default the first on the PATH of a login.",
    )
    modules: list[Word] = Field(
        [], description="Slurm: what `module load` loads on nodes, such as `cuda/12.4`, in order."
    )
    container: Word | None = Field(
        None,
        description="Slurm: the image that ranks run in, as `container_runtime` takes it. It has "
        "Python 3.10 or newer.",
    )
    container_runtime: Literal["pyxis", "apptainer"] = Field(
        "pyxis", description="Slurm: what runs `container` on nodes."
    )
    mounts: list[Annotated[str, AfterValidator(_mount)]] = Field(
        [], description="Slurm: folders of nodes that `container` has, beside `storage`."
    )
    gpu_names: dict[Annotated[str, AfterValidator(_gpu_name)], Name] = Field(
        {},
        description="Slurm: what the cluster calls a type of GPU (`scontrol show node`, `Gres`), "
        "where that is another name: `{H100: hopper}`.",
    )
    keep_variables: list[Name] = Field(
        [],
        description="Slurm: variables of Slurm and MPI that ranks get, such as `SLURM_JOB_ID` or "
        "`SLURM_*`. Without it they get none: libraries would take them for their own start.",
    )
