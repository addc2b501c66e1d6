"""The packages that the code of a run imports, read from the source."""

import sys
from collections.abc import Collection, Iterable

from sgpu_decl.code.sources import Source
from sgpu_decl.diagnostics.place import Place

# In the standard library of other versions of Python.
# fmt: off
_ELSEWHERE = frozenset({
    "annotationlib", "asynchat", "asyncore", "cgi", "cgitb", "compression", "crypt",
    "distutils", "imghdr", "imp", "lib2to3", "nntplib", "pipes", "smtpd", "sndhdr", "spwd",
    "telnetlib", "tomllib", "uu", "xdrlib",
})
# fmt: on
_OURS = frozenset({"sgpu_decl", "__main__"})


def code_names(paths: Collection[str]) -> frozenset[str]:
    """Every name by which a file of the code could be imported, whichever of its folders are on
    `sys.path`. `paths` are relative, with `/`."""
    names: set[str] = set()
    for path in paths:
        *folders, file = path.split("/")
        names.update(folders)
        names.add(file.partition(".")[0])
    return frozenset(names)


def outside_imports(executed: Iterable[Source], names: Collection[str]) -> dict[str, Place]:
    """The top-level packages that a run imports from outside its code and the standard library.

    Args:
        executed: the files of the code that the run executes.
        names: the result of `code_names`.

    Returns:
        Each package with the place of its first import, relative to the root of the code.
    """
    packages: dict[str, Place] = {}
    known_names = _OURS | _ELSEWHERE | sys.stdlib_module_names
    for source in executed:
        for item in source.imports:
            top = item.module.partition(".")[0]
            if not item.level and top not in names and top not in known_names:
                packages.setdefault(top, Place(source.shown, item.line, item.column))
    return packages
