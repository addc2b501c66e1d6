"""Names and versions of installed packages, and their files outside of the package folders."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution

from sgpu_decl.content.manifest import File
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.environments.captured.file_walk import WalkEntry, walk_entry
from sgpu_decl.environments.captured.file_worker import Form
from sgpu_decl.environments.captured.normal_form import is_script
from sgpu_decl.environments.captured.site_layout import Layout, Root
from sgpu_decl.environments.captured.stat_cache import StatCache
from sgpu_decl.environments.package_lists.packages import normalise

_INFO = re.compile(r"(.+)/([^/]+\.(?:dist|egg)-info)(?:/(.+))?")
_METADATA = ("METADATA", "PKG-INFO", None)  # None: the .egg-info is a file itself
HEAD = 4096  # bytes of a file that say whether it is a script
_OUTSIDE = re.compile(rb'^"?((?:\.\./)+[^"\n]*?)"?,[^,\n]*,[^,\n]*$', re.MULTILINE)
# Every tree has its own.
_OWN = re.compile(r"pyvenv\.cfg|bin/(?:python[\d.]*|[aA]ctivate.*)|lib(?:64)?|lib/python[\d.]+")


def packages(
    sites: Iterable[str], files: Mapping[str, File], sources: Mapping[str, str], cache: StatCache
) -> tuple[tuple[tuple[str, str], ...], tuple[Diagnostic, ...]]:
    """Read which packages are installed; of equal names the first on the path counts.

    Args:
        files, sources: the captured files and their locations, by tree path.

    Returns:
        Pairs of normalised name and version, sorted, and the findings.
    """
    # By site, and by info folder: the path of the metadata file if there is one.
    metadata_paths: dict[str, dict[str, str | None]] = {site: {} for site in sites}
    for path in files:
        if "-info" in path and (match := _INFO.fullmatch(path)):
            site, info, inner = match.groups()
            if site in metadata_paths:
                metadata_path = metadata_paths[site].setdefault(info, None)
                if inner in _METADATA and (metadata_path is None or inner == "METADATA"):
                    metadata_paths[site][info] = path
    installed: dict[str, str] = {}
    findings = []
    for site, infos in metadata_paths.items():
        for info, metadata in sorted(infos.items()):
            package = _name_and_version(metadata, files, sources, cache)
            if package is None:
                findings.append(_broken(site, info))
            else:
                installed.setdefault(*package)
    return tuple(sorted(installed.items())), tuple(findings)


def _name_and_version(
    path: str | None, files: Mapping[str, File], sources: Mapping[str, str], cache: StatCache
) -> tuple[str, str] | None:
    if path is None or path not in sources:
        return None
    package = cache.name(files[path].content)
    if package is not None:
        return package
    source = sources[path]
    folder = source if path.endswith("-info") else os.path.dirname(source)
    try:
        metadata = Distribution.at(folder).metadata
        name, version = metadata["Name"], metadata["Version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not name or not version:
        return None
    package = normalise(name), version.strip()
    cache.remember_name(files[path].content, *package)
    return package


def _broken(site: str, info: str) -> Diagnostic:
    return Diagnostic(
        code="metadata_broken",
        severity=Severity.WARNING,
        summary=f"the metadata of `{info}` has no name or no version; its files are captured, "
        "but its version is not shown",
        hint=f"install that package again (it is in `{os.path.basename(site)}`)",
    )


def listed_files(layout: Layout) -> Iterator[WalkEntry]:
    """The files that RECORD lists outside of its folder, inside of the prefix (`../../../bin/x`).

    Of equal paths the first on the interpreter's path counts.
    """
    trees: set[str] = set()
    for root in layout.roots:
        if root.project:
            continue
        prefix = os.path.normpath(os.path.join(root.path, "../../.."))
        for inner in sorted(_outside(root)):
            path = os.path.normpath(os.path.join(root.path, inner))
            tree = os.path.relpath(path, prefix)
            if tree in trees or layout.tree_of(path) is not None or not _may_be(tree):
                continue
            try:
                facts = os.stat(path)
                if stat.S_ISREG(facts.st_mode):
                    how = Form.SCRIPT if _begins_as_script(path) else Form.PLAIN
                    yield walk_entry(tree, path, how, facts)
                    trees.add(tree)
            except OSError:
                continue  # deleted since it was installed


def _outside(root: Root) -> set[str]:
    paths: set[str] = set()
    try:
        names = [name for name in os.listdir(root.path) if name.endswith(".dist-info")]
    except OSError:
        return paths  # the walk reports it
    for name in names:
        try:
            with open(os.path.join(root.path, name, "RECORD"), "rb") as file:
                paths.update(map(os.fsdecode, _OUTSIDE.findall(file.read())))
        except OSError:
            continue  # packages of the system have none
    return paths


def _may_be(tree: str) -> bool:
    parts = tree.split("/")
    return parts[0] != ".." and parts[-1][-4:] != ".pyc" and not _OWN.fullmatch(tree)


def _begins_as_script(path: str) -> bool:
    with open(path, "rb") as file:
        return is_script(file.read(HEAD))
