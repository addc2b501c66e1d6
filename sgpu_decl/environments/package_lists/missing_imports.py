"""Warns about imports that the environment lacks, where that is certain."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from sgpu_decl.content.manifest import Manifest
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.import_names import DISTRIBUTIONS
from sgpu_decl.model.environment import Environment, Package

_MODULES = (".py", ".pyc", ".so", ".pyd")
_NO_MODULES = (".dist-info", ".egg-info", ".data", ".libs")
# These make no further module importable.
_HARMLESS = frozenset({"distutils-precedence.pth", "_virtualenv.pth", "a1_coverage.pth"})

Imports = Mapping[str, Place]


def lacking_in_snapshot(imports: Imports, manifest: Manifest) -> tuple[Diagnostic, ...]:
    """The imported packages that a captured environment lacks."""
    names = top_levels(manifest)
    if names is None:
        return ()
    return tuple(_finding(name, place) for name, place in imports.items() if name not in names)


def lacking_in_interpreter(
    imports: Imports,
    importable: Callable[[str], bool],
    elsewhere: Callable[[str], str | None] = lambda _: None,
) -> tuple[Diagnostic, ...]:
    """The imported packages that an interpreter cannot find.

    Args:
        elsewhere: gives the interpreter of an environment of the user that has a package.
    """
    return tuple(
        _finding(name, place, elsewhere(name))
        for name, place in imports.items()
        if not importable(name)
    )


def lacking_in_packages(imports: Imports, packages: Iterable[Package]) -> tuple[Diagnostic, ...]:
    """The imported packages without a distribution in a complete list, as that of a lock."""
    names = {package.name for package in packages}
    return tuple(
        _finding(name, place)
        for name, place in imports.items()
        if name in DISTRIBUTIONS and names.isdisjoint(DISTRIBUTIONS[name])
    )


def lacking_in_base(
    imports: Imports, base: Environment, added: Iterable[Package] = ()
) -> tuple[Diagnostic, ...]:
    """As `lacking_in_packages`, for a base with added packages. Where the base's list is not
    complete, only packages that it is known to lack count."""
    packages = [*base.packages, *added]
    findings = lacking_in_packages(imports, packages)
    if base.complete:
        return findings
    absent = {name for name in imports if _without(name, base.absent)}
    return lacking_in_packages(
        {name: imports[name] for name in imports if name in absent}, packages
    )


def top_levels(manifest: Manifest) -> frozenset[str] | None:
    """The names that can be imported from the sites of an environment, or None where a `.pth` file
    may make others importable."""
    names: set[str] = set()
    for site in manifest.sites:
        for name in _children(manifest, f"{site}/"):
            if name.endswith(".pth"):
                if name not in _HARMLESS and not name.endswith("-nspkg.pth"):
                    return None
            elif not name.endswith(_NO_MODULES):
                names.add(name.partition(".")[0])
    return frozenset(names)


def _children(manifest: Manifest, site: str) -> Iterator[str]:
    """Folders, modules and `.pth` files directly in a site."""
    for file in manifest.files:
        if not file.path.startswith(site):
            continue
        name, slash, _ = file.path[len(site) :].partition("/")
        if slash or name.endswith((*_MODULES, ".pth")):
            yield name


def _without(name: str, absent: Collection[str]) -> bool:
    return name in DISTRIBUTIONS and any(item in absent for item in DISTRIBUTIONS[name])


def _finding(name: str, place: Place, elsewhere: str | None = None) -> Diagnostic:
    if elsewhere is not None:
        return Diagnostic(
            code="package_missing",
            severity=Severity.WARNING,
            summary=f"`{place.file}` imports `{name}`, which the interpreter that runs sgpu lacks",
            place=place,
            hint=f"your environment has it: `env: {{python: {elsewhere}}}`",
        )
    distributions = DISTRIBUTIONS.get(name)
    what = f"`{distributions[0]}`" if distributions else f"what provides `{name}`"
    return Diagnostic(
        code="package_missing",
        severity=Severity.WARNING,
        summary=f"`{place.file}` imports `{name}`, which the environment lacks",
        place=place,
        hint=f"install {what}, or declare it in `env`; an import that may fail belongs under "
        "`try: … except ImportError`",
    )
