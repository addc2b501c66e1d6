"""What travels to machines without sgpu carries all that it imports: each module of each archive,
and the functions and classes that Ray sends by value, in an empty interpreter."""

import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sgpu_decl.backends.archives import agent_zip, rank_zip, tracker_zip
from sgpu_decl.backends.ray.launching.jobs import job_package

ROOT = Path(__file__).parents[2]
OTHERS = """
import importlib.abc, importlib.machinery, importlib.util, sys

class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (Exception,), {"__init__": lambda *_, **__: None})

def attribute(name):
    if name == "cloudpickle" and importlib.util.find_spec(name):
        return importlib.import_module(name)
    return getattr(Anything(name, (), {}), name)

class Others(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    # Nodes may have these, in whatever version.
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("ray", "mlflow"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.__getattr__ = attribute

sys.meta_path.append(Others())
"""
CODE = """
import dis, importlib, sys, types

def imports(code):
    # What a function imports of sgpu.
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and step.argval.startswith("sgpu_decl"):
            yield step.argval
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from imports(inner)
"""
LOADED = f"""{CODE}
import zipimport
get_code, late = zipimport.zipimporter.get_code, {{}}

def noted(loader, name):
    code = get_code(loader, name)
    functions = [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    late[name] = {{item for function in functions for item in imports(function)}}
    return code

zipimport.zipimporter.get_code = noted
for name, path in [pair.split("=") for pair in sys.argv[2:]]:
    package = sys.modules.setdefault(name, type(sys)(name))
    package.__path__ = [path] if path else []
for name in sys.argv[1].split(","):
    importlib.import_module(name)
"""
EACH = f"""{LOADED}
waiting = [name for names in late.values() for name in names]
done = {{"sgpu_decl.diagnostics.masks"}}  # of a function for this machine alone
while waiting:
    name = waiting.pop()
    if name not in done:
        importlib.import_module(name)
        done.add(name)
        waiting += late.get(name, ())
"""
DRIVER = f"""{LOADED}
# The folder is deleted once the program is read: what functions import later is loaded by then.
sent = {{"node_actor", "node_files", "node_folder", "content_limit"}}
for name, names in late.items():
    package, _, module = name.rpartition(".")
    if package.endswith(".cluster") and module not in sent:
        assert names <= set(sys.modules), (name, names - set(sys.modules))
"""
SEND = """
import ast, importlib, pathlib, sys
sys.path[:0] = sys.argv[1:3]
import cloudpickle
from sgpu_decl.backends.ray import cluster
sent = []
for path in sorted(pathlib.Path(cluster.__file__).parent.glob("*.py")):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.remote":
            module = importlib.import_module(f"sgpu_decl.backends.ray.cluster.{path.stem}")
            sent.append(eval(ast.unparse(node.args[0]), vars(module)))
assert len(sent) == 2, sent
sys.stdout.buffer.write(cloudpickle.dumps(sent))
"""
TAKE = f"""{CODE}
import pickle
sys.path.insert(0, sys.argv[1])
sent = pickle.loads(sys.stdin.buffer.read())

def functions(value, seen):
    # The functions that it may call, with those of its classes.
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, type):
        for one in [*value.__bases__, *vars(value).values()]:
            yield from functions(one, seen)
    elif isinstance(value, property):
        yield from functions(value.fget, seen)
    elif isinstance(value, types.FunctionType) and "sgpu_decl" in (value.__module__ or ""):
        yield value
        for one in value.__globals__.values():
            yield from functions(one, seen)

for value in sorted(sent, key=lambda value: isinstance(value, type)):
    used = list(functions(value, {{}}))
    assert len(used) > 2
    if isinstance(value, type):  # an actor brings the agent along; a task has nothing
        (add,) = {{one for one in used if one.__name__ == "_add_packages"}}
        add(sys.argv[2])
    for name in {{name for function in used for name in imports(function.__code__)}}:
        importlib.import_module(name)
"""


def modules(archive: bytes, package: str) -> str:
    """The names of its modules, but for the program itself."""
    names = sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist())
    files = [name.removesuffix(".py") for name in names if name.endswith(".py")]
    found = [name.removesuffix("/__init__") for name in files if name != "__main__"]
    whole = [f"{package}.{name.replace('/', '.')}" for name in found if name != "__init__"]
    # The archive of the agent has a second room.
    return ",".join(whole).replace("sgpu_decl.agent.content", "sgpu_decl.content")


def python(code: str, *arguments: object, given: bytes = b"") -> bytes:
    """Run it where neither sgpu nor anything that is installed can be imported."""
    command = [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, input=given, cwd="/", env={}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(name="agent")
def agent_file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.zip"
    path.write_bytes(agent_zip()[1])
    return path


def test_the_agent(agent: Path) -> None:
    names = modules(agent_zip()[1], "sgpu_decl.agent")
    assert "sgpu_decl.content.hydration" in names
    python(EACH, names, f"sgpu_decl={agent}", f"sgpu_decl.agent={agent}")


def test_what_runs_in_ranks(tmp_path: Path) -> None:
    path = tmp_path / "rank.zip"
    path.write_bytes(rank_zip(compiled=False))
    names = modules(path.read_bytes(), "sgpu_decl.rank")
    python(EACH, names, "sgpu_decl=", f"sgpu_decl.rank={path}")


def test_the_tracker(agent: Path, tmp_path: Path) -> None:
    path = tmp_path / "tracker.zip"
    path.write_bytes(tracker_zip())
    # The archive has modules of this machine, too.
    packages = f"sgpu_decl={agent}", f"sgpu_decl.agent={agent}", f"sgpu_decl.tracking={path}"
    python(f"{OTHERS}{EACH}", "sgpu_decl.tracking.tracker", *packages)


def test_the_programs_of_a_ray_job(tmp_path: Path) -> None:
    path = tmp_path / "package.zip"
    path.write_bytes(job_package({})[1])
    with zipfile.ZipFile(path) as archive:
        archive.extract("agent.zip", tmp_path)
    cluster = "sgpu_decl.backends.ray.cluster"
    agent = tmp_path / "agent.zip"
    packages = [f"sgpu_decl={agent}", f"sgpu_decl.agent={agent}", f"{cluster}={path}"]
    packages += ["sgpu_decl.backends=", "sgpu_decl.backends.ray="]
    programs = f"{cluster}.depot,{cluster}.driver"
    python(f"{OTHERS}{DRIVER}", programs, *packages)
    python(f"{OTHERS}{EACH}", modules(path.read_bytes(), cluster), *packages)


def test_what_ray_sends_to_nodes_by_value(agent: Path, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("cloudpickle")
    assert spec is not None
    assert spec.origin is not None
    installed = tmp_path / "installed"
    installed.mkdir()
    os.symlink(Path(spec.origin).parent, installed / "cloudpickle")
    sent = python(f"{OTHERS}{SEND}", ROOT, installed)
    python(f"{OTHERS}{TAKE}", installed, agent, given=sent)
