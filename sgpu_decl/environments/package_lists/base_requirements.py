"""A requirements file that makes an environment like a base elsewhere."""

from sgpu_decl.environments.package_lists.base_environments import Base
from sgpu_decl.errors import SgpuError

__all__ = ["requirements_of"]


def requirements_of(base: Base) -> str:
    """Every package of a base pinned, in the platform's spelling; those that no index has stand in
    comments with the reason.

    The list is whole, so that it is installed as it is (`--no-deps`): platforms ship combinations
    that a resolver would refuse.

    Raises:
        SgpuError: the base's packages are known in part, so no file would reproduce it.
    """
    environment = base.environment
    if not environment.complete:
        raise SgpuError(
            f"the packages of `{base.name}` are known in part only: no file reproduces it",
            hint=f"`sgpu env show {base.name}` says what is known; see {base.source.url}",
            code="base_incomplete",
        )
    lines = [
        f"# {base.title} ({base.name}): Python {environment.python}, CUDA {environment.cuda}",
        f"# from {base.source.url}, as of {base.source.as_of}",
        f"# uv pip install --python {environment.python} --no-deps -r FILE",
    ]
    for package in environment.packages:
        name = base.spelled[package.name]
        reason = base.left_out.get(package.name)
        if reason is None:
            lines.append(f"{name}=={package.version}")
        else:
            lines.append(f"# left out: {name} {package.version} ({reason})")
    return "\n".join(lines) + "\n"
