"""The files of a project as one: the blocks of included files joined with those of the root file.

Values keep the file that they were written in.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, TypeAlias

from sgpu_decl.config.include import Included, ReadIncluded, include_patterns
from sgpu_decl.config.included_run import as_fragment, is_run_file, run_name
from sgpu_decl.config.joined_blocks import JoinedBlocks, keys_of_root
from sgpu_decl.diagnostics.diagnostic import Diagnostic, has_errors
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text import file_limits, yaml_nodes
from sgpu_decl.text.yaml_reader import load_file

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
    folders: Mapping[str, str] = field(default_factory=dict)
    run_files: Mapping[str, str] = field(default_factory=dict)

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
    document, findings = load_file(text, file)
    if document is None:
        return None, findings
    root, source = document.root, document.source
    if not file_limits.is_project(root, file):  # it may have been read under a project's limits
        if document.size > file_limits.RUN_FILE.size:
            return None, (*findings, file_limits.too_large(file, file_limits.RUN_FILE))
        if document.nodes > file_limits.RUN_FILE.nodes:
            return None, (*findings, file_limits.too_many(file, file_limits.RUN_FILE))
        return ProjectFiles(kind="run", file=file, root=root, texts=(source,)), findings
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
        one, new_findings = load_file(item.content, item.file)
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
