"""Small environments, written by hand, with the objects of a store."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends import archives
from sgpu_decl.content.hydration import hydrate
from sgpu_decl.content.manifest import File, FileKind, Manifest
from sgpu_decl.content.python_match import this_python
from sgpu_decl.content.tree_files import FIXED_NS, remove

PACKAGES = f"lib/python{this_python().minor}/site-packages"


def pack_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Write a wheel of pure Python."""
    info = f"{name}-{version}.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": wheel,
    }
    record = "".join(f"{path},,\n" for path in [*whole, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**whole, f"{info}/RECORD": record}.items():
            archive.writestr(member, text)
    return path


@dataclass(frozen=True)
class Made:
    """One environment, and the store that its objects lie in."""

    manifest: Manifest
    store: Path

    @property
    def objects(self) -> Path:
        return self.store / "objects"

    @property
    def trees(self) -> Path:
        return self.store / "trees"

    def object(self, path: str) -> Path:
        """The object of a path in the tree."""
        file = next(item for item in self.manifest.files if item.path == path)
        return self.objects / file.key[:2] / file.key

    def hydrate(self, name: str = "tree", **options: Any) -> Path:
        """Make its tree in this process (and the two of its crew)."""
        tree = self.trees / name
        hydrate(self.manifest, str(self.objects), str(tree), sys.executable, **options)
        return tree


def put(store: Path, content: bytes, *, executable: bool = False) -> tuple[int, str]:
    digest = hashlib.sha256(content).hexdigest()
    key = digest + (".x" if executable else "")
    path = store / "objects" / key[:2] / key
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o555 if executable else 0o444)
        os.utime(path, ns=(FIXED_NS, FIXED_NS))
    return len(content), digest


@pytest.fixture
def make_environment(tmp_path: Path) -> Iterator[Callable[..., Made]]:
    """`make({path below the packages: text})`, with scripts and links by whole paths."""
    store = tmp_path / "store"

    def make(
        packages: Mapping[str, str | bytes],
        *,
        scripts: Mapping[str, str] | None = None,
        executables: Mapping[str, bytes] | None = None,
        links: Mapping[str, str] | None = None,
        sites: tuple[str, ...] = (PACKAGES,),
        bytecode: Mapping[str, bytes] | None = None,
        **python: str,
    ) -> Made:
        (store / "objects").mkdir(parents=True, exist_ok=True)
        files = [File(path, FileKind.LINK, 0, target) for path, target in (links or {}).items()]
        for path, content in packages.items():
            data = content if isinstance(content, bytes) else content.encode()
            whole = path if path.startswith(("lib/", "share/")) else f"{PACKAGES}/{path}"
            files.append(File(whole, FileKind.FILE, *put(store, data)))
        for path, text in (scripts or {}).items():
            files.append(File(path, FileKind.SCRIPT, *put(store, text.encode())))
        for path, data in (executables or {}).items():
            files.append(File(path, FileKind.EXECUTABLE, *put(store, data, executable=True)))
        pycs = [
            File(path, FileKind.FILE, *put(store, data)) for path, data in (bytecode or {}).items()
        ]
        manifest = Manifest(
            this_python()._replace(**python), sites, (), tuple(sorted(files)), tuple(sorted(pycs))
        )
        return Made(Manifest.from_bytes(manifest.to_bytes(), manifest.digest), store)

    yield make
    trees = store / "trees"
    for path in trees.iterdir() if trees.is_dir() else ():
        remove(str(path))


@pytest.fixture
def agent_zip(tmp_path: Path) -> Path:
    """The agent as workers have it."""
    path = tmp_path / "agent.zip"
    path.write_bytes(archives.agent_zip()[1])
    return path


def say(tree: Path, code: str, **env: str) -> Any:
    """What `code` prints as JSON in the interpreter of a tree."""
    done = subprocess.run(
        [tree / "bin/python", "-c", f"import json, sys\n{code}"],
        env={"PATH": os.environ["PATH"], **env},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(name="say")
def _say() -> Callable[..., Any]:
    return say


@pytest.fixture(name="pack_wheel")
def _pack_wheel(tmp_path: Path) -> Callable[[str, str, Mapping[str, str]], Path]:
    return lambda name, version, files: pack_wheel(tmp_path, name, version, files)
