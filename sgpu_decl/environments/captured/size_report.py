"""The size of an environment, and its largest packages."""

from collections import defaultdict

from sgpu_decl.content.manifest import Manifest
from sgpu_decl.diagnostics.amounts import size
from sgpu_decl.diagnostics.diagnostic import Diagnostic


def largest(manifest: Manifest, count: int = 5) -> tuple[tuple[str, int], ...]:
    """The packages that take most space, with their bytes, the largest first.

    A package is recognised by its folder in the site: `torch`, or `nvidia/cublas` where several
    packages share a folder. It gets its installed name where that is similar.
    """
    sites = sorted(manifest.sites, key=len, reverse=True)
    modules = {file.path[: -len("/__init__.py")] for file in manifest.files
               if file.path.endswith("/__init__.py")}  # fmt: skip
    sizes: dict[str, int] = defaultdict(int)
    for file in manifest.files:
        site = next((item for item in sites if file.path.startswith(f"{item}/")), "")
        parts = file.path[len(site) :].strip("/").split("/")
        shared = site and len(parts) > 2 and f"{site}/{parts[0]}" not in modules
        depth = 2 if shared or not site else 1
        sizes["/".join(parts[:depth])] += file.size
    installed = {name.replace("-", ""): name for name, _ in manifest.packages}
    by_package: dict[str, int] = defaultdict(int)
    for folder, held in sizes.items():
        by_package[_name(folder, installed)] += held
    ordered = sorted(by_package.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ordered[:count])


def over_limit(manifest: Manifest, limit: int) -> Diagnostic | None:
    """The error for an environment of more than `limit` bytes, with its largest packages."""
    if manifest.size <= limit:
        return None
    most = ", ".join(f"`{name}` {size(held)}" for name, held in largest(manifest))
    return Diagnostic(
        code="environment_too_large",
        summary=f"the environment holds {size(manifest.size)}, and the backend takes {size(limit)}",
        hint="uninstall what the run does not need, or set `backend.environment_limit`; the "
        f"largest are {most}",
    )


def _name(folder: str, installed: dict[str, str]) -> str:
    """`nvidia/cublas` is `nvidia-cublas-cu12`; `torch.libs` and `bin/torch` are `torch`."""
    plain = (
        folder.removeprefix("bin/")
        .replace("/", "")
        .replace("_", "")
        .replace("-", "")
        .replace(".libs", "")
        .lower()
    )
    if plain in installed:
        return installed[plain]
    longer = [name for name in installed if "/" in folder and name.startswith(plain)]
    return installed[min(longer)] if longer else folder
