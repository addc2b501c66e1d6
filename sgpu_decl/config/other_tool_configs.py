"""Whole files of other tools: a run or project file is none of them, and each has a page that says
how the same is written here.

A file is known by keys that its tool demands and that mean nothing here, so that a run file with a
mistake is never taken for one. Sources: the references of dstack (`type` of a configuration),
Databricks bundles (`databricks bundle schema`), accelerate (`accelerate config`), Axolotl, LitGPT
(`config_hub`), torchtune (`_component_`), LLaMA-Factory (`examples`), W&B sweeps (`method`,
`parameters`), Kubernetes (`apiVersion`, `kind`), `sbatch`, `ray up`, Docker compose, GitHub
workflows, conda and DeepSpeed.
"""

import re
from typing import Final, NamedTuple

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.text.yaml_nodes import Document, Mapping, Node, Scalar
from sgpu_decl.text.yaml_reader import decoded, load_file


class _Config(NamedTuple):
    """`what` it is, with `{key}` for the text of a root key; `signs` are paths of keys that must be
    there (`*` is any key), and for some of them a pattern that their text fits. `tool` is what
    `sgpu import` calls the tool, if it reads its files."""

    what: str
    hint: str
    signs: tuple[tuple[str, str | None], ...]
    tool: str | None = None


_START = "`sgpu init` writes a run file to start from"
_PAGE = "see `docs/coming-from/{page}.md` for what its fields are called here; " + _START
_IMPORT = "`sgpu import FILE` writes it as one, and says what is lost"
_TRAINER = (
    "keep it, and let a run start its tool: `docs/coming-from/trainers.md` has the `command`; "
    + _START
)
_ANY = None
_OURS = ("gpus", "entrypoint", "runs")
_ANY_OF_OURS = re.compile(
    r"""^[\s{]*["']?(?:name|gpus|type|entrypoint|command|project|runs|jobs|targets|state)["']?\s*:""",
    re.MULTILINE,
)


def _page(page: str) -> str:
    return _PAGE.format(page=page)


# The first that fits counts.
_CONFIGS: Final = (
    _Config(
        "a dstack task", f"{_IMPORT}; see `docs/coming-from/dstack.md`",
        (("type", "task"), ("commands", _ANY)), "dstack",
    ),
    _Config(
        "a dstack {type}", _page("dstack"),
        (("type", "task|service|dev-environment|fleet|volume|gateway"),), "dstack",
    ),
    _Config(
        "a Databricks bundle", f"{_IMPORT}; see `docs/coming-from/databricks-bundles.md`",
        (("bundle.name", _ANY),), "bundle",
    ),
    _Config(
        "a part of a Databricks bundle", f"{_IMPORT}; see `docs/coming-from/databricks-bundles.md`",
        (("resources.jobs", _ANY),), "bundle",
    ),
    _Config(
        "a config of accelerate",
        "keep it, and give it to `accelerate launch --config_file` in the `command` of a run: see "
        f"`docs/coming-from/accelerate.md`; {_START}",
        (("compute_environment", _ANY), ("distributed_type", _ANY)),
    ),
    _Config("a config of Axolotl", _TRAINER, (("base_model", _ANY), ("datasets", _ANY))),
    _Config("a config of LitGPT", _TRAINER, (("data.class_path", r"litgpt\..*"),)),
    _Config("a config of LitGPT", _TRAINER, (("train.micro_batch_size", _ANY), ("out_dir", _ANY))),
    _Config("a config of torchtune", _TRAINER, (("model._component_", _ANY),)),
    _Config(
        "a config of LLaMA-Factory", _TRAINER,
        (("model_name_or_path", _ANY), ("finetuning_type", _ANY)),
    ),
    _Config(
        "a sweep of W&B",
        "write a `matrix` for a grid, or keep the sweep and let runs start its agents: see "
        f"`docs/coming-from/wandb-sweeps.md`; {_START}",
        (("method", "grid|random|bayes"), ("parameters", _ANY)),
    ),
    _Config("a Kubernetes {kind}", _page("kubernetes"), (("apiVersion", _ANY), ("kind", r"\w+"))),
    _Config(
        "a cluster of `ray up`",
        "start it with `ray up`, and name its address in a run file: see `docs/ray-backend.md`; "
        + _START,
        (("cluster_name", _ANY), ("provider", _ANY)),
    ),
    _Config(
        "a file of Docker compose",
        "write the command of its service as `command`; sgpu runs in a container: see "
        f"`docs/how-to/containers.md`; {_START}",
        (("services.*.image", _ANY),),
    ),
    _Config(
        "a GitHub workflow",
        "a step of it may call sgpu: see `docs/how-to/ci.md`; " + _START,
        (("on", _ANY), ("jobs.*.runs-on", _ANY)),
    ),
    _Config(
        "an environment of conda",
        "make it (`conda env create --prefix ENVIRONMENT --file FILE`), and name its Python in a "
        f"run file: `env: {{python: ENVIRONMENT/bin/python, snapshot: true}}`; {_START}",
        (("channels", _ANY), ("dependencies", _ANY)),
    ),
    _Config(
        "a config of DeepSpeed",
        "keep it, and give it to your script in `args` of a run file; " + _START,
        (("zero_optimization", _ANY),),
    ),
    _Config(
        "a config of DeepSpeed",
        "keep it, and give it to your script in `args` of a run file; " + _START,
        (("train_micro_batch_size_per_gpu", _ANY),),
    ),
)  # fmt: skip

# A run file may have keys of these by mistake: there, each key has its own hint.
_LIKE_RUNS: Final = (
    _Config("", "", (("experiment_name", _ANY), ("compute.accelerator_type", _ANY)), "air"),
    _Config("", "", (("experiment_name", _ANY), ("_bases_", _ANY)), "air"),
    *(
        _Config("", "", (("run", _ANY), (key, _ANY)), "skypilot")
        for key in ("resources", "num_nodes", "setup", "file_mounts", "workdir", "envs")
    ),
)

# Of files that are no YAML with one mapping, by their text.
_TEXTS: Final = (
    ("a batch script of Slurm", _page("slurm"), re.compile(r"\A#!.*\n(?:.*\n)*?#SBATCH ")),
    (
        "a shell script",
        f"write `command: bash FILE` in a run file, or `sgpu run --gpus 1 -- bash FILE`; {_START}",
        re.compile(r"\A#!.*\b(?:ba|z|k|da)?sh\b"),
    ),
    (
        "a file of Kubernetes",
        _page("kubernetes"),
        re.compile(r"^apiVersion: .*\n(?:.*\n)*?kind: ", re.MULTILINE),
    ),
)


def read_document(
    content: str | bytes, file: str
) -> tuple[Document | None, tuple[Diagnostic, ...]]:
    """Read a run or project file as `load_file` does; a file of another tool is none, and has one
    finding that says what it is."""
    document, findings = load_file(content, file)
    if document is not None:
        told = _told(document.root)
        text = document.source
    else:
        text = decoded(content, file)[0] or ""
        told = next(((what, hint) for what, hint, known in _TEXTS if known.search(text)), None)
    place = Place(file, 1, 1)
    if told is not None:
        what, hint = told
        finding = Diagnostic(
            code="other_tool_file",
            summary=f"`{file}` is {what}, not a run or project file",
            place=place,
            hint=hint.replace("FILE", file),
        )
    elif file.endswith((".yaml", ".yml")) or not content.strip() or _ANY_OF_OURS.search(text):
        return document, findings
    else:  # it was meant to be a saved plan, which begins otherwise
        finding = Diagnostic(
            code="bad_plan",
            summary=f"`{file}` is not a saved plan, and not a run or project file",
            place=place,
            hint="name what `--out` of a plan wrote, or a YAML file: `sgpu init` writes one",
        )
    return None, (finding,)


def tool_of(root: Mapping) -> str | None:
    """The tool that a file is for, as `sgpu import` calls it; `None` where that is not clear."""
    for config in (*_CONFIGS, *_LIKE_RUNS):
        if all(_fits(root, path, pattern) for path, pattern in config.signs):
            return config.tool
    return None


def _told(root: Mapping) -> tuple[str, str] | None:
    """What a file is, and what to do with it; `None` for one that may be ours."""
    entries = root.entries
    if any(key in entries for key in _OURS) or isinstance(entries.get("project"), Mapping):
        return None
    for config in _CONFIGS:
        if all(_fits(root, path, pattern) for path, pattern in config.signs):
            words = {key: one.text for key, one in entries.items() if isinstance(one, Scalar)}
            return config.what.format_map(words), config.hint
    return None


def _fits(node: Node, path: str, pattern: str | None) -> bool:
    key, _, rest = path.partition(".")
    if not key:
        return pattern is None or (
            isinstance(node, Scalar) and re.fullmatch(pattern, node.text) is not None
        )
    if not isinstance(node, Mapping):
        return False
    if key == "*":
        return any(_fits(below, rest, pattern) for below in node.entries.values())
    return key in node.entries and _fits(node.entries[key], rest, pattern)
