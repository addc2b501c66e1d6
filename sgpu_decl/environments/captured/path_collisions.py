"""Paths that collide in one tree, on some file systems."""

from collections.abc import Collection

from sgpu_decl.content.manifest import BadManifest, check_path
from sgpu_decl.diagnostics.diagnostic import Diagnostic


def collisions(paths: Collection[str]) -> tuple[Diagnostic, ...]:
    """The errors for paths that a manifest would refuse.

    Args:
        paths: of files and links, each once.
    """
    folders = set()
    findings = []
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
        try:
            check_path(path)
        except BadManifest:
            findings.append(
                Diagnostic(
                    code="name_unusable",
                    summary=f"the environment has a file named {path!r}, which is not safe on "
                    "other machines",
                    hint="rename or delete it",
                )
            )
    spellings: dict[str, str] = {}
    for path in sorted({*paths, *folders}):
        other = spellings.setdefault(path.casefold(), path)
        if other != path:
            findings.append(
                Diagnostic(
                    code="names_collide",
                    summary=f"`{other}` and `{path}` differ in case alone: some file systems "
                    "take them for the same",
                    hint="uninstall one of the packages that brought them, or rename one",
                )
            )
    findings += [
        Diagnostic(
            code="names_collide",
            summary=f"`{path}` is a file of one package and a folder of another",
            hint="uninstall one of them",
        )
        for path in sorted(folders.intersection(paths))
    ]
    return tuple(findings)
