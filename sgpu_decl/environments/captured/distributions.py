"""Names and versions of the packages of an environment."""

import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution

from sgpu_decl.content.manifest import File
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.environments.captured.stat_cache import StatCache
from sgpu_decl.environments.package_lists.packages import normalise

_INFO = re.compile(r"(.+)/([^/]+\.(?:dist|egg)-info)(?:/(.+))?")
_METADATA = ("METADATA", "PKG-INFO", None)  # None: the .egg-info is a file itself


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
