"""Wheels of a few bytes, an index that serves them, and what is resolved from them."""

import base64
import hashlib
import http.server
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.declared.environment_build import BuildResult, build
from sgpu_decl.environments.declared.lock import Lock
from sgpu_decl.environments.declared.resolution import ResolveRequest, resolve
from sgpu_decl.environments.declared.resolution_cache import ResolutionCache
from sgpu_decl.environments.declared.uv import find_uv
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.environments.interpreters import LocalPython, Pythons
from sgpu_decl.model.step_progress import Progress, Quiet
from tests.http_servers import QuietThreadingServer
from tests.support import some


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    scripts: Sequence[str] = (),
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
) -> Path:
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    body = {
        f"{module}/__init__.py": f"def main():\n    print('{name}', '{version}')\n",
        **(files or {}),
        f"{info}/METADATA": head + "".join(f"Requires-Dist: {require}\n" for require in requires),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if scripts:
        body[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "\n".join(scripts) + "\n"
    record = f"{info}/RECORD"
    body[record] = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in body.items())
    body[record] += f"{record},,\n"
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in body.items():
            archive.writestr(zipfile.ZipInfo(inside), text)
    return path


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sha256(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheelwright() -> Callable[..., Path]:
    return make_wheel


@pytest.fixture
def hash_of(wheels: Path) -> Callable[[str], str]:
    """`alpha-1.0` to the hash of its wheel."""
    return lambda name: sha256(wheels / f"{name}-py3-none-any.whl")


@dataclass
class Index:
    """A simple index (PEP 503) over a folder. `asked` holds the paths of all requests; `password`
    is what it wants; a file that is in `other` is answered with other bytes."""

    url: str
    wheels: Path
    asked: list[str] = field(default_factory=list)
    yanked: set[str] = field(default_factory=set)
    other: dict[str, bytes] = field(default_factory=dict)
    password: str | None = None
    status: int = 200


def _handler(index: Index) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            status, body = self._answer()
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Type", "text/html" if body[:1] == b"<" else "bytes/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  the name that http.server looks for

        def _answer(self) -> tuple[int, bytes]:
            if index.status != 200:
                return index.status, b"<p>no"
            if index.password is not None:
                login = base64.b64encode(f"me:{index.password}".encode()).decode()
                if self.headers.get("Authorization") != f"Basic {login}":
                    return 401, b"<p>who"
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "files":
                path = index.wheels / name
                return 200, index.other.get(name) or path.read_bytes()
            found = sorted(index.wheels.glob(f"{name.replace('-', '_')}-*"))
            links = "".join(
                f'<a href="/files/{item.name}#sha256={sha256(item)[7:]}"'
                f"{' data-yanked=broken' if item.name in index.yanked else ''}>{item.name}</a>"
                for item in found
            )
            return (200, f"<html>{links}".encode()) if found else (404, b"<p>none")

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """alpha 1.0, 1.1, 2.0; beta 1.0 needs alpha<2, beta 2.0 needs alpha>=2 and, elsewhere, winonly;
    elder has no wheel for any Python of today; astray needs what is nowhere."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("1.0", "1.1", "2.0"):
        make_wheel(folder, "alpha", version, scripts=["alpha = alpha:main"])
    make_wheel(folder, "beta", "1.0", requires=["alpha<2"])
    elsewhere = "winonly; sys_platform == 'win32'"
    make_wheel(folder, "beta", "2.0", requires=["alpha>=2", elsewhere])
    make_wheel(folder, "elder", "1.0", tag="cp38-cp38-manylinux1_x86_64")
    make_wheel(folder, "checker", "1.0")
    make_wheel(folder, "astray", "1.0", requires=["nowhere>=3"])
    return folder


@pytest.fixture
def index(wheels: Path) -> Iterator[Index]:
    served = Index(url="", wheels=wheels)
    server = QuietThreadingServer(("127.0.0.1", 0), _handler(served))
    served.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Declared:
    """A project whose environments are resolved from the index."""

    folder: Path
    environ: dict[str, str]
    known: ResolutionCache
    memory: Path

    def python(self, wanted: str | None = None) -> LocalPython:
        found = Pythons(self.environ, self.memory / "pythons.json").find(wanted, self.folder)
        assert isinstance(found, LocalPython)
        return found

    def resolve(
        self,
        *,
        previous: Lock | None = None,
        upgrade: bool = False,
        constraints: tuple[str, ...] = (),
        guarded: bool = False,
        **fields: Any,
    ) -> tuple[Lock | None, tuple[Diagnostic, ...]]:
        python = some(self.python())
        block = EnvironmentBlock.model_validate(fields)
        listed = block.dependencies or ()
        places = {
            f"env.dependencies.{item}": Place("run.yaml", 5 + item, 5)
            for item in range(len(listed))
        }
        places |= {f"env.{field_}": Place("run.yaml", 4, 3) for field_ in fields}
        asking = ResolveRequest(
            block=block, python=python, folder=self.folder, environ=self.environ,
            places=places, constraints=constraints, guarded=self.folder if guarded else None,
        )  # fmt: skip
        return resolve(asking, self.known, Quiet(), previous=previous, upgrade=upgrade)

    def versions(self, **fields: object) -> dict[str, str]:
        return {package.name: package.version for package in self.lock(**fields).packages}

    def lock(self, **fields: Any) -> Lock:
        lock, found = self.resolve(**fields)
        assert lock is not None, found
        return lock

    def refused(self, **fields: Any) -> Diagnostic:
        lock, found = self.resolve(**fields)
        assert lock is None
        assert len(found) == 1, found
        return found[0]

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def declared(tmp_path: Path, index: Index) -> Declared:
    folder = tmp_path / "project"
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environ |= {
        "UV_DEFAULT_INDEX": index.url,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_HTTP_RETRIES": "0",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NO_PROXY": "127.0.0.1",
    }
    return Declared(folder, environ, ResolutionCache(tmp_path / "memory" / "resolved"), tmp_path)


@pytest.fixture
def uv(declared: Declared) -> Callable[..., None]:
    def call(*arguments: str, folder: Path) -> None:
        path = find_uv(declared.environ)
        python = ["--python", sys.executable]
        subprocess.run(
            [path, *arguments, *python, "-q"], cwd=folder, env=declared.environ, check=True
        )

    return call


@pytest.fixture
def silent_index() -> Iterator[str]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/simple"


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(tmp_path / "store" / "environments")


@pytest.fixture
def left(store: EnvironmentStore) -> Callable[[], list[str]]:
    """What builds left beside the objects of the store."""
    home = store.objects.parent / "building"
    return lambda: sorted(path.name for path in home.iterdir()) if home.exists() else []


@pytest.fixture
def make(declared: Declared, store: EnvironmentStore) -> Callable[..., BuildResult]:
    def call(lock: Lock, progress: Progress | None = None) -> BuildResult:
        python = some(declared.python())
        return build(
            lock, python, store, progress or Quiet(),
            folder=declared.folder, environ=declared.environ,
        )  # fmt: skip

    return call
