"""The files of a project as one: the blocks of the files that `include` brought, joined with those
of the root file. An included run file counts as the fragment that says the same.

Values keep the file that they were written in.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import field, replace
from typing import Literal, TypeAlias

from sgpu_decl.config.joined_blocks import JoinedBlocks, keys_of_root
from sgpu_decl.config.other_tool_configs import read_document
from sgpu_decl.config.required_version import refused_version
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text import file_limits, yaml_nodes
from sgpu_decl.text.yaml_nodes import (
    Mapping,
    Node,
    Scalar,
    is_nothing,
    place_of,
    without_keys,
)
from sgpu_decl.text.yaml_nodes import Sequence as Items

_MAGIC = re.compile(r"[*?\[]")
_NEVER = (".git", ".sgpu")
_EXAMPLE = "such as `runs/*.yml`"


@dataclass(frozen=True, slots=True)
class IncludePattern:
    """`text` is a relative path with `/`, in which `*`, `?`, `[…]` and `**` match names."""

    text: str
    place: Place

    @property
    def literal(self) -> bool:
        """Whether it names one file."""
        return _MAGIC.search(self.text) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludedFile:
    """One file that a pattern matched.

    Attributes:
        path: from the folder of the root file, with `/`.
        file: as places name it: from the folder that the command was called in.
    """

    path: str
    file: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Included:
    files: tuple[IncludedFile, ...] = ()
    findings: tuple[Diagnostic, ...] = ()


ReadIncluded = Callable[[Sequence[IncludePattern]], Included]
"""Reads the files that the patterns match, in order."""


def include_patterns(root: Mapping) -> tuple[tuple[IncludePattern, ...], tuple[Diagnostic, ...]]:
    """The patterns of a root file, and what is wrong with them by their text alone."""
    block = root.entries.get("include")
    if block is None or is_nothing(block):
        return (), ()
    if not isinstance(block, Items):
        return (), (_no_list(place_of(block)),)
    patterns: list[IncludePattern] = []
    findings: list[Diagnostic] = []
    for item in block.items:
        if not isinstance(item, Scalar) or is_nothing(item):
            findings.append(_no_list(place_of(item)))
            continue
        refusals = tuple(_refused(item))
        findings += refusals[:1]
        if not refusals:
            parts = [part for part in item.text.split("/") if part not in ("", ".")]
            patterns.append(IncludePattern("/".join(parts), place_of(item)))
    return tuple(patterns), tuple(findings)


def _refused(item: Scalar) -> Iterator[Diagnostic]:
    text = item.text
    parts = text.split("/")
    if "${" in text:
        yield _invalid(
            item,
            f"`{text}` holds a reference, and files are read first",
            f"write it out, {_EXAMPLE}",
        )
    if text.startswith(("/", "~")) or ".." in parts:
        yield _invalid(
            item,
            f"`{text}` leads out of the project",
            f"name files below the folder of this file by a relative path, {_EXAMPLE}",
        )
    for name in _NEVER:
        if name in parts:
            yield _invalid(
                item, f"`{text}` leads into `{name}`, which holds no files of a project",
                f"name files of yours, {_EXAMPLE}",
            )  # fmt: skip
    if not text.strip("/.") or "\0" in text or text.endswith("/"):
        yield _invalid(item, f"`{text}` names no file", f"write a path or a pattern, {_EXAMPLE}")


def _no_list(place: Place) -> Diagnostic:
    return Diagnostic(
        code="wrong_type",
        summary="`include` must be a list of paths and patterns",
        place=place,
        hint="write `include: [runs/*.yml]`",
    )


def _invalid(item: Scalar, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code="include_invalid", summary=summary, place=place_of(item), hint=hint)


_ITS_OWN = ("variables", "targets")
"""Blocks that fragments have, too."""


def is_run_file(root: Mapping) -> bool:
    from sgpu_decl.config.plain_values import project_shape, run_shape

    own = root.entries.keys() - {*_ITS_OWN}
    return not own & project_shape().keys.keys() and bool(own & run_shape().keys.keys())


def run_name(root: Mapping) -> Scalar | Diagnostic:
    """The name of the run in a run file. It becomes a key, in which nothing is filled in."""
    name = root.entries.get("name")
    if isinstance(name, Scalar) and not is_nothing(name) and "${" not in name.text:
        return name
    if isinstance(name, Scalar) and not is_nothing(name):
        return Diagnostic(
            code="bad_name",
            summary=f"the name of an included run holds a reference: `{name.text[:80]}`",
            place=place_of(name),
            hint="write the name out, or use `matrix` for several runs",
        )
    return Diagnostic(
        code="missing_key",
        summary="`name` is missing",
        place=place_of(root if name is None else name),
        hint="add `name`: in an included file it is the key of the run",
    )


def as_fragment(root: Mapping, name: Scalar) -> Mapping:
    """A run file as the fragment that says the same: its run under `runs`, and what its targets
    change of the run under `targets.TARGET.runs`."""
    place = place_of(name)
    entries: dict[str, Node] = {
        "runs": _holding(root, name.text, place, without_keys(root, "name", *_ITS_OWN))
    }
    if "variables" in root.entries:
        entries["variables"] = root.entries["variables"]
    targets = root.entries.get("targets")
    if isinstance(targets, Mapping):
        changed = {
            target: _target_of_run(overrides, name) for target, overrides in targets.entries.items()
        }
        entries["targets"] = replace(targets, entries=changed)
    elif targets is not None:
        entries["targets"] = targets
    keys = {key: root.keys.get(key, place) for key in entries}
    return replace(root, entries=entries, keys=keys)


def _target_of_run(overrides: Node, name: Scalar) -> Node:
    if not isinstance(overrides, Mapping):
        return overrides
    own = without_keys(overrides, "variables")
    place = place_of(overrides)
    entries: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    if "variables" in overrides.entries:
        entries["variables"] = overrides.entries["variables"]
        keys["variables"] = overrides.keys["variables"]
    if own.entries:
        entries["runs"] = _holding(overrides, name.text, place, own)
        keys["runs"] = place
    return replace(overrides, entries=entries, keys=keys)


def _holding(near: Mapping, key: str, place: Place, node: Mapping) -> Mapping:
    return replace(near, entries={key: node}, keys={key: place})


Kind = Literal["run", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """What the file of a command and the files that it includes hold together.

    Attributes:
        kind: a run file includes nothing.
        file: the root file, as places name it.
        root: its mapping, with the blocks of the others joined in.
        texts: the texts of all files.
        included: the included files, from the folder of the root file.
        folders: the folder of each file that lies in one below the project's, by the name that
            places have for the file.
        run_files: the files that describe one run, by its name.
    """

    kind: Kind
    file: str
    root: yaml_nodes.Mapping
    texts: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    folders: Names[str, str] = field(default_factory=dict)
    run_files: Names[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets that are declared."""
        block = self.root.entries.get("targets")
        names = block.entries if isinstance(block, yaml_nodes.Mapping) else {}
        return tuple(name for name in names if isinstance(names[name], yaml_nodes.Mapping))


ParsedFiles: TypeAlias = tuple[ProjectFiles | None, tuple[Diagnostic, ...]]
"""`None` where one of the files cannot be read, and what is wrong with them so far."""


def nothing_included(_: object) -> Included:
    """Include no files: for texts that have no folder."""
    return Included()


def read_files(text: str | bytes, file: str, read_included: ReadIncluded) -> ParsedFiles:
    """Parse a file and the files that it includes, and join them.

    Args:
        file: how the user named it, for places.
        read_included: is asked once for the files of `include`, and only if there are patterns.
    """
    document, findings = read_document(text, file)
    if document is None:
        return None, findings
    root, source = document.root, document.source
    if not file_limits.is_project(root, file):  # it may have been read under a project's limits
        if document.size > file_limits.RUN_FILE.size:
            return None, (*findings, file_limits.too_large(file, file_limits.RUN_FILE))
        if document.nodes > file_limits.RUN_FILE.nodes:
            return None, (*findings, file_limits.too_many(file, file_limits.RUN_FILE))
        return ProjectFiles(kind="run", file=file, root=root, texts=(source,)), findings
    if (refusal := refused_version(root)) is not None:
        return None, (refusal,)
    patterns, pattern_findings = include_patterns(root)
    findings += pattern_findings
    if has_errors(pattern_findings):
        return None, findings
    alone = ProjectFiles(kind="project", file=file, root=root, texts=(source,))
    if not patterns:
        return alone, findings
    included = read_included(patterns)
    findings += included.findings
    documents: list[tuple[str, yaml_nodes.Document]] = []
    nodes, size = document.nodes, document.size
    for item in included.files:
        one, new_findings = read_document(item.content, item.file)
        findings += new_findings
        if one is not None:
            documents.append((item.path, one))
            nodes, size = nodes + one.nodes, size + one.size
    if size > file_limits.PROJECT_FILE.size:
        findings += (file_limits.too_large(file, file_limits.PROJECT_FILE),)
    if nodes > file_limits.PROJECT_FILE.nodes:
        findings += (file_limits.too_many(file, file_limits.PROJECT_FILE),)
    if has_errors(findings):  # what a file would bring is no lack of the others
        return None, findings
    joined, new_findings = _joined(alone, documents)
    return joined, (*findings, *new_findings)


def _joined(
    project: ProjectFiles, documents: Sequence[tuple[str, yaml_nodes.Document]]
) -> tuple[ProjectFiles, tuple[Diagnostic, ...]]:
    join = JoinedBlocks(project.root)
    run_files: dict[str, str] = {}
    for _, document in documents:
        root = document.root
        if is_run_file(root):
            name = run_name(root)
            if isinstance(name, Diagnostic):
                join.findings.append(name)
                continue
            run_files.setdefault(name.text, document.file)
            join.add(as_fragment(root, name))
        else:
            join.findings += keys_of_root(root)
            join.add(root)
    folders = {document.file: posixpath.dirname(path) for path, document in documents}
    return replace(
        project,
        root=join.root(),
        texts=(*project.texts, *(document.source for _, document in documents)),
        included=tuple(path for path, _ in documents),
        folders={name: folder for name, folder in folders.items() if folder},
        run_files=run_files,
    ), tuple(join.findings)
