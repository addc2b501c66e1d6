"""Lock files of each kind: what they pin, and what is said of broken ones."""

import tomllib
from pathlib import Path
from typing import cast

import pytest
from packaging import pylock
from packaging.markers import Environment
from packaging.tags import sys_tags

from sgpu_decl.content.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.package_lists.lock_file import LockedPackages
from sgpu_decl.environments.package_lists.lock_kinds import read_lock
from sgpu_decl.environments.package_lists.markers import marker_values

OLD = Python("cpython", "3.11.7", "cpython-311-x86_64-linux-gnu", "linux-x86_64", "glibc-2.36")
NEW = Python("cpython", "3.12.3", "cpython-312-x86_64-linux-gnu", "linux-x86_64", "glibc-2.39")
HASH = "0123456789abcdef" * 4

PYLOCK = f"""\
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.11"
default-groups = ["train"]

[[packages]]
name = "Py.Yaml"
version = "6.0.3"
wheels = [{{ url = "https://x/a.whl", hashes = {{ sha256 = "{HASH}" }} }}]

[[packages]]
name = "colorama"
version = "0.4.6"
marker = "sys_platform == 'win32'"
sdist = {{ url = "https://x/c.tar.gz", hashes = {{ sha256 = "{HASH}" }} }}

[[packages]]
name = "numpy"
version = "2.3.5"
marker = "python_full_version < '3.12'"
sdist = {{ url = "https://x/n.tar.gz", hashes = {{ sha256 = "{HASH}" }} }}

[[packages]]
name = "numpy"
version = "2.5.5"
marker = "python_full_version >= '3.12'"
sdist = {{ url = "https://x/n.tar.gz", hashes = {{ sha256 = "{HASH}" }} }}

[[packages]]
name = "peft"
version = "0.17.1"
marker = "'train' in dependency_groups"
vcs = {{ type = "git", url = "https://x/peft", commit-id = "{HASH[:40]}" }}

[[packages]]
name = "pytest"
version = "9.2.0"
marker = "'dev' in dependency_groups"
sdist = {{ url = "https://x/p.tar.gz", hashes = {{ sha256 = "{HASH}" }} }}
"""

UV = f"""\
version = 1
revision = 3
requires-python = ">=3.11"
resolution-markers = ["python_full_version >= '3.12'", "python_full_version < '3.12'"]

[[package]]
name = "demo"
version = "0.1"
source = {{ virtual = "." }}
dependencies = [
    {{ name = "colorama", marker = "sys_platform == 'win32'" }},
    {{ name = "numpy", version = "2.3.5", marker = "python_full_version < '3.12'" }},
    {{ name = "numpy", version = "2.5.5", marker = "python_full_version >= '3.12'" }},
    {{ name = "requests", extra = ["socks"] }},
]

[package.dev-dependencies]
dev = [{{ name = "pytest" }}]

[[package]]
name = "numpy"
version = "2.3.5"
source = {{ registry = "r" }}
resolution-markers = ["python_full_version < '3.12'"]
sdist = {{ url = "u", hash = "sha256:{HASH}" }}

[[package]]
name = "numpy"
version = "2.5.5"
source = {{ registry = "r" }}
resolution-markers = ["python_full_version >= '3.12'"]
sdist = {{ url = "u", hash = "sha256:{HASH}" }}

[[package]]
name = "requests"
version = "2.34.2"
source = {{ registry = "r" }}
dependencies = [{{ name = "idna" }}]
wheels = [{{ url = "u", hash = "sha256:{HASH}" }}]

[package.optional-dependencies]
socks = [{{ name = "pysocks" }}]

[[package]]
name = "idna"
version = "3.20"
source = {{ registry = "r" }}
dependencies = [{{ name = "requests" }}]
wheels = [{{ url = "u", hash = "sha256:{HASH}" }}]

[[package]]
name = "pysocks"
version = "1.7.1"
source = {{ git = "https://x/pysocks?rev=main#{HASH[:40]}" }}

[[package]]
name = "colorama"
version = "0.4.6"
source = {{ registry = "r" }}
wheels = [{{ url = "u", hash = "sha256:{HASH}" }}]

[[package]]
name = "pytest"
version = "9.2.0"
source = {{ registry = "r" }}
wheels = [{{ url = "u", hash = "sha256:{HASH}" }}]
"""

REQUIREMENTS = f"""\
# made by a tool
--index-url https://example.invalid/simple
-r more.txt
numpy==2.3.5 ; python_full_version < '3.12' \\
    --hash=sha256:{HASH} \\
    --hash=sha256:{HASH}
    # via demo
numpy==2.5.5 ; python_full_version >= '3.12' --hash=sha256:{HASH}  # a comment
tool @ https://example.invalid/tool-1.2+cpu-py3-none-any.whl --hash=sha256:{HASH}
Foo.Bar[extra]===1.0 --hash=sha256:{HASH}
"""


def read(folder: Path, name: str, text: str, python: Python = OLD) -> LockedPackages:
    locked, found = parsed(folder, name, text, python)
    assert found == ()
    assert locked is not None
    return locked


def parsed(
    folder: Path, name: str, text: str | bytes, python: Python = OLD
) -> tuple[LockedPackages | None, tuple[Diagnostic, ...]]:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_lock(path, name, python=python)


def pins(locked: LockedPackages) -> list[tuple[str, str]]:
    return [(package.name, package.version) for package in locked.packages]


def refused(folder: Path, name: str, text: str | bytes) -> list[tuple[str, str]]:
    """Each finding as its code and place."""
    locked, found = parsed(folder, name, text)
    assert locked is None
    assert all(item.hint for item in found)
    return [(item.code, str(item.place)) for item in found]


def test_pylock(tmp_path: Path) -> None:
    locked = read(tmp_path, "pylock.toml", PYLOCK)
    assert (locked.kind, locked.hashed, locked.python) == ("pylock", True, ">=3.11")
    assert pins(locked) == [("numpy", "2.3.5"), ("peft", "0.17.1"), ("py-yaml", "6.0.3")]
    assert ("numpy", "2.5.5") in pins(read(tmp_path, "pylock.gpu.toml", PYLOCK, NEW))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"environments": ["sys_platform == 'win32'"]}, "is for other environments: `sys_pl"),
        ({"environments": ["sys_platform == 'win32'", "python_version == '3.11'"]}, None),
        ({"requires-python": ">=3.12"}, "has numpy 2.3.5, which is for Python >=3.12, and the run"),
        ({"requires-python": ">=3.11"}, None),
    ],
)
def test_a_pylock_is_for_an_interpreter_where_packaging_says_so(
    tmp_path: Path, change: dict[str, object], words: str | None
) -> None:
    text = PYLOCK.replace("Py.Yaml", "py-yaml").replace("a.whl", "py_yaml-6.0.3-py3-none-any.whl")
    for name, version in (("c", "colorama-0.4.6"), ("p", "pytest-9.2.0")):
        text = text.replace(f"x/{name}.tar.gz", f"x/{version}.tar.gz")
    text = text.replace("x/n.tar.gz", "x/numpy-2.3.5.tar.gz", 1).replace("x/n.", "x/numpy-2.5.5.")
    if "environments" in change:
        text = f"environments = {change['environments']}\n{text}"
    elif change:
        limit = f'version = "2.3.5"\nrequires-python = "{change["requires-python"]}"'
        text = text.replace('version = "2.3.5"', limit)
    theirs = pylock.Pylock.from_dict(tomllib.loads(text))
    locked = read(tmp_path, "pylock.toml", text)
    environment = cast("Environment", marker_values(OLD))
    try:
        chosen = list(theirs.select(environment=environment, tags=list(sys_tags())))
    except pylock.PylockSelectError:
        assert words is not None
        assert words in (locked.misfit or "")
    else:
        assert locked.misfit is words is None
        assert pins(locked) == sorted((item.name, str(item.version)) for item, _ in chosen)


def test_uv_lock_follows_what_the_project_needs_on_the_interpreter(tmp_path: Path) -> None:
    locked = read(tmp_path, "uv.lock", UV)
    assert (locked.kind, locked.hashed, locked.python) == ("uv", True, ">=3.11")
    rest = [("pysocks", "1.7.1"), ("requests", "2.34.2")]
    assert pins(locked) == [("idna", "3.20"), ("numpy", "2.3.5"), *rest]
    newer = pins(read(tmp_path, "uv.lock", UV, NEW))
    assert newer == [("idna", "3.20"), ("numpy", "2.5.5"), *rest]


def test_a_uv_lock_may_hold_the_options_of_the_resolution(tmp_path: Path) -> None:
    options = (
        '[options]\nresolution-mode = "lowest"\nprerelease-mode = "allow"\n'
        'exclude-newer = "2025-01-01T00:00:00Z"\n\n'
        '[options.exclude-newer-package]\nsix = "2025-02-01T00:00:00Z"\n\n'
    )
    text = UV.replace("[[package]]", f"{options}[[package]]", 1)
    assert pins(read(tmp_path, "uv.lock", text)) == pins(read(tmp_path, "uv.lock", UV))


def test_uv_lock_of_a_script_starts_at_what_the_script_names(tmp_path: Path) -> None:
    project = UV.index("[[package]]")
    rest = UV.index("[[package]]", project + 1)
    manifest = '[manifest]\nrequirements = [{ name = "idna" }]\n\n'
    locked = read(tmp_path, "train.py.lock", UV[:project] + manifest + UV[rest:])
    assert [package.name for package in locked.packages] == ["idna", "requests"]


def test_requirements(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text(f"torch==2.7.1+cu126 --hash=sha256:{HASH}\n")
    locked = read(tmp_path, "requirements.txt", REQUIREMENTS)
    assert (locked.kind, locked.hashed, locked.python) == ("requirements", True, None)
    assert pins(locked) == [
        ("foo-bar", "1.0"),
        ("numpy", "2.3.5"),
        ("tool", "1.2+cpu"),
        ("torch", "2.7.1+cu126"),
    ]
    assert ("numpy", "2.5.5") in pins(read(tmp_path, "requirements.txt", REQUIREMENTS, NEW))


def test_without_hashes_it_is_said(tmp_path: Path) -> None:
    assert not read(tmp_path, "r.txt", f"a==1 --hash=sha256:{HASH}\nb==2\n").hashed
    assert not read(tmp_path, "r.txt", "").hashed


def test_every_line_that_pins_nothing_is_named(tmp_path: Path) -> None:
    text = (
        "torch>=2.6\nnumpy\na==1\n-e .\nb==1.*\nc==1,>0\n?!\ngit+https://x/y\n"
        "d @ https://x/d.tar.gz\n./e.whl\n--frobnicate\ne==1; os_nme == 'x'\n"
    )
    expected = ["lock_unpinned", "lock_unpinned", "lock_invalid", "lock_unpinned", "lock_unpinned"]
    expected += ["lock_invalid", "lock_invalid", "lock_unpinned", *["lock_invalid"] * 3]
    lines = [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert refused(tmp_path, "r.txt", text) == [
        (code, f"r.txt:{line}:1") for code, line in zip(expected, lines, strict=True)
    ]


def test_a_finding_in_an_included_file_is_placed_there(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.txt").write_text("\nnumpy\n-r ../r.txt\n-r gone.txt\n")
    assert refused(tmp_path, "r.txt", "a==1\n-r sub/more.txt\n") == [
        ("lock_unpinned", "sub/more.txt:2:1"),
        ("lock_invalid", "sub/more.txt:3:1"),  # it includes itself
        ("lock_unreadable", "sub/more.txt:4:1"),
    ]


def test_two_pins_of_one_package_contradict(tmp_path: Path) -> None:
    assert refused(tmp_path, "r.txt", "foo-bar==1\nFoo_Bar==2\n") == [
        ("lock_contradicts", "r.txt:2:1")
    ]
    twice = PYLOCK.replace("marker = \"python_full_version >= '3.12'\"\n", "")
    assert [code for code, _ in refused(tmp_path, "pylock.toml", twice)] == ["lock_contradicts"]


NAMELESS = PYLOCK.replace('name = "colorama"\n', "")
ODD_MARKER = PYLOCK.replace("sys_platform", "sys_plan")
FILELESS = PYLOCK[: PYLOCK.index("sdist", PYLOCK.index("2.3.5"))]
HALF = UV[: UV.index("]\n\n[package.dev")]
DEPENDENCY_GONE = UV[: UV.index('[[package]]\nname = "pysocks"')]
NO_LIST = 'lock-version = "1.0"\ncreated-by = "x"\npackages = 3\n'
NO_TABLES = "version = 1\npackage = 3\nrequires-python = 4\n[manifest]\nrequirements = [3, {}]"


@pytest.mark.parametrize(
    ("name", "text", "code", "line"),
    [
        ("pylock.toml", PYLOCK[: PYLOCK.index("hashes")], "lock_syntax", 9),
        ("pylock.toml", 'lock-version = "2.0"\n', "lock_invalid", 1),
        ("pylock.toml", 'lock-version = "1.0"\n', "lock_invalid", 1),
        ("pylock.toml", NAMELESS, "lock_invalid", 11),
        ("pylock.toml", ODD_MARKER, "lock_invalid", 11),
        ("pylock.toml", FILELESS, "lock_invalid", 17),
        ("pylock.toml", NO_LIST, "lock_invalid", 1),
        ("uv.lock", "version = 1\n[[package]]\nname = \n", "lock_syntax", 3),
        ("uv.lock", HALF, "lock_syntax", 14),
        ("uv.lock", "\x00", "lock_syntax", 1),
        ("uv.lock", b"\xff\xfe", "lock_unreadable", 1),
        ("uv.lock", UV.replace("version = 1\n", "version = 2\n", 1), "lock_invalid", 1),
        ("uv.lock", DEPENDENCY_GONE, "lock_invalid", 1),
        ("uv.lock", NO_TABLES, "lock_invalid", 1),
        ("poetry.lock", 'content = "x"\n', "other_tool_file", 1),
        ("pyproject.toml", "[project]\nname = 'x'\n", "other_tool_file", 1),
    ],
)
def test_broken_files_are_refused_with_a_place(
    tmp_path: Path, name: str, text: str | bytes, code: str, line: int
) -> None:
    found, place = refused(tmp_path, name, text)[0]
    assert (found, place.rpartition(":")[0]) == (code, f"{name}:{line}")


@pytest.mark.parametrize(("name", "text"), [("pylock.toml", PYLOCK), ("uv.lock", UV)])
def test_a_lock_that_is_cut_off_anywhere_is_never_a_traceback(
    tmp_path: Path, name: str, text: str
) -> None:
    for end in range(0, len(text), 7):
        locked, found = parsed(tmp_path, name, text[:end])
        assert (locked is None) == bool(found)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("r.txt", "uv.lock"):
        locked, found = read_lock(tmp_path / name, name)
        assert locked is None
        assert [item.code for item in found] == ["lock_unreadable"]


def test_a_folder_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").mkdir()
    _, found = read_lock(tmp_path / "uv.lock", "uv.lock")
    assert [item.code for item in found] == ["lock_unreadable"]
