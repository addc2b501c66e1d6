"""`requires: "sgpu>=0.3"` of a project: the versions of sgpu that may read it. It is checked before
all else, because a file for a later version has fields that this one does not know."""

import re

from sgpu_decl import __version__
from sgpu_decl.config.text_types import problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, is_nothing, place_of

REQUIRES = "requires"
_WRITTEN = re.compile(r"\s*sgpu\s*([<>=!~].*)", re.DOTALL)


def version_range(text: str) -> str:
    """The text as it is, if it is `sgpu` and a version specifier of Python packages
    (https://packaging.python.org/en/latest/specifications/version-specifiers/)."""
    if _fits(text, __version__) is None:
        raise problem(
            "bad_version_range",
            "{path} must be a range of versions of sgpu, not {given}",
            f'write `{REQUIRES}: "sgpu>={__version__}"`',
        )
    return text


def refused_version(root: Mapping, version: str = __version__) -> Diagnostic | None:
    """Find that a root file is for other versions. A text that is no range is left to the
    validation of the file."""
    node = root.entries.get(REQUIRES)
    if not isinstance(node, Scalar) or is_nothing(node) or _fits(node.text, version) is not False:
        return None
    return Diagnostic(
        code="other_version_required",
        summary=f"the project requires `{node.text.strip()[:80]}`, and this is sgpu {version}",
        place=place_of(node),
        hint=f"install such a version of sgpu, or change `{REQUIRES}` if this one works, too",
    )


def _fits(text: str, version: str) -> bool | None:
    """Whether a version is in a range; `None` if the text is none."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    match = _WRITTEN.fullmatch(text)
    try:
        return SpecifierSet(match[1]).contains(version, prereleases=True) if match else None
    except InvalidSpecifier:
        return None
