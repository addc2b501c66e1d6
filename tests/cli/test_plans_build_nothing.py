"""No way in which a requirement is found lets a plan, or any other look, run code of a package."""

import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import Shell
from tests.sampling import sampled
from tests.support import shell_program

RUN: Final = 'name: a\ngpus: 1\ntype: CPU\ncommand: ["true"]\nmlflow: {enabled: false}\n'
BACKEND: Final = (
    "import pathlib\npathlib.Path({mark!r}).touch()\n"
    "def build_wheel(*_, **__): raise SystemExit('no')\n"
    "build_editable = get_requires_for_build_wheel = build_wheel\n"
)
PROJECT: Final = (
    '[build-system]\nrequires = []\nbuild-backend = "bk"\nbackend-path = ["."]\n'
    '[project]\nname = "evil"\ndynamic = ["version", "dependencies"]\n'
)
APP: Final = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.10"\n'
LOCK: Final = (
    'version = 1\nrequires-python = ">=3.10"\n[[package]]\nname = "app"\nversion = "1"\n'
    'source = { virtual = "." }\ndependencies = [{ name = "evil" }]\n'
    '[[package]]\nname = "evil"\nversion = "1.0"\n'
)
PLAIN: Final = "env: {dependencies: [evil]}\n"
FILE: Final = "env: {requirements: wanted.txt}\n"

# How a requirement is found: the files of the project, and variables. In all texts, INDEX is the
# URL of an index that has only the source, ARCHIVE that source, and HERE the folder of the project.
Case = tuple[dict[str, str], dict[str, str]]
CASES: Final[dict[str, Case]] = {
    **{
        f"{where} {setting}": ({"env": PLAIN, **files}, {})
        for setting, line in (
            ("index-url", 'index-url = "INDEX"'),
            ("extra-index-url", 'extra-index-url = ["INDEX"]'),
            ("find-links", 'find-links = ["FLAT"]'),
        )
        for where, files in (
            ("uv.toml", {"uv.toml": line}),
            ("uv.toml pip", {"uv.toml": f"[pip]\n{line}"}),
            ("tool.uv", {"pyproject.toml": f"[tool.uv]\n{line}"}),
            ("tool.uv.pip", {"pyproject.toml": f"[tool.uv.pip]\n{line}"}),
        )
    },
    "uv.toml index": ({"env": PLAIN, "uv.toml": '[[index]]\nurl = "INDEX"'}, {}),
    "tool.uv index": ({"env": PLAIN, "pyproject.toml": '[[tool.uv.index]]\nurl = "INDEX"'}, {}),
    "an override": (
        {"env": PLAIN, "uv.toml": 'override-dependencies = ["evil @ file://HERE/evil"]'}, {},
    ),
    "no-binary for a package": (
        {"env": PLAIN, "uv.toml": 'index-url = "INDEX"\nno-binary-package = ["evil"]'}, {},
    ),
    "no-binary in a table with another spelling": (
        {"env": PLAIN, "pyproject.toml": '[tool]\n"uv" = {index-url = "INDEX", "no-\\u0062inary-'
         'package" = ["evil"]}'}, {},
    ),
    "no-binary above, in a workspace": (
        {"../pyproject.toml": '[tool.uv]\nno-binary-package = ["evil"]\nindex-url = "INDEX"\n'
         '[tool.uv.workspace]\nmembers = ["*"]', "pyproject.toml": f"{APP}[tool.uv]\n",
         "env": PLAIN}, {},
    ),
    "UV_INDEX_URL": ({"env": PLAIN}, {"UV_INDEX_URL": "INDEX"}),
    "UV_DEFAULT_INDEX": ({"env": PLAIN}, {"UV_DEFAULT_INDEX": "INDEX"}),
    "UV_INDEX": ({"env": PLAIN}, {"UV_INDEX": "INDEX"}),
    "UV_FIND_LINKS": ({"env": PLAIN}, {"UV_FIND_LINKS": "FLAT"}),
    "UV_CONFIG_FILE": (
        {"env": PLAIN, "my.toml": 'index-url = "INDEX"\n[pip]\nno-binary = ["evil"]'},
        {"UV_CONFIG_FILE": "my.toml"},
    ),
    "UV_CONSTRAINT": (
        {"env": PLAIN, "bounds.txt": "--no-binary evil\n"},
        {"UV_CONSTRAINT": "bounds.txt", "UV_INDEX_URL": "INDEX"},
    ),
    "UV_OVERRIDE": (
        {"env": PLAIN, "other.txt": "evil @ file://HERE/evil\n"}, {"UV_OVERRIDE": "other.txt"},
    ),
    "the user's settings": ({"env": PLAIN, "CONFIG/uv/uv.toml": 'index-url = "INDEX"'}, {}),
    "an option": ({"env": 'env: {dependencies: ["-i INDEX", evil]}\n'}, {}),
    "an option of a file": ({"env": FILE, "wanted.txt": "--index-url INDEX\nevil\n"}, {}),
    "links of a file": ({"env": FILE, "wanted.txt": "-f FLAT\nevil\n"}, {}),
    "only-binary of a file": (
        {"env": FILE, "wanted.txt": "-i INDEX\n--only-binary :none:\nevil\n"}, {},
    ),
    "no-binary of a file": (
        {"env": FILE, "wanted.txt": "-i INDEX\n--no-binary evil\nevil\n"}, {},
    ),
    "no-binary behind a comment": (
        {"env": FILE, "wanted.txt": "-i INDEX\nevil # all \\\n--no-binary evil\n"}, {},
    ),
    "an included file": (
        {"env": FILE, "wanted.txt": "--requirements more/more.txt\n",
         "more/more.txt": "-i INDEX\n--no-binary=evil\nevil\n"}, {},
    ),
    "constraints": (
        {"env": FILE, "wanted.txt": "-i INDEX\n-c bounds.txt\nevil\n",
         "bounds.txt": "evil @ file://HERE/evil\n"}, {},
    ),
    "an editable install": ({"env": FILE, "wanted.txt": "-e file://HERE/evil\n"}, {}),
    "an editable install behind a comment": (
        {"env": FILE, "wanted.txt": "# one \\\n-e ./evil\n"}, {},
    ),
    "a hash": ({"env": FILE, "wanted.txt": "-i INDEX\nevil==1.0 --hash=sha256:HASH\n"}, {}),
    "a folder": ({"env": "env: {dependencies: [./evil]}\n"}, {}),
    "a named folder": ({"env": 'env: {dependencies: ["evil @ ./evil"]}\n'}, {}),
    "a URL of a folder": ({"env": 'env: {dependencies: ["evil @ file://HERE/evil"]}\n'}, {}),
    "an archive": ({"env": "env: {dependencies: [ARCHIVE]}\n"}, {}),
    "a repository": ({"env": 'env: {dependencies: ["evil @ git+file://HERE/evil"]}\n'}, {}),
    "pyproject.toml as requirements": (
        {"env": "env: {requirements: pyproject.toml}\n", "pyproject.toml": f"{APP}dependencies = "
         '["evil"]\n[tool.uv.sources]\nevil = { path = "evil", editable = true }\n'}, {},
    ),
    "dynamic metadata": (
        {"env": "env: {requirements: evil/pyproject.toml}\n"}, {},
    ),
    "setup.py as requirements": (
        {"env": "env: {requirements: evil/setup.py}\n", "evil/setup.py": "import bk\n"}, {},
    ),
    "a script with a header": (
        {"env": "env: {requirements: train.py}\n",
         "train.py": '# /// script\n# dependencies = ["evil @ file://HERE/evil"]\n# ///\n'}, {},
    ),
    "a lock with the source": (
        {"env": "env: {lock: uv.lock}\n",
         "uv.lock": f'{LOCK}source = {{ registry = "INDEX" }}\n'
         'sdist = { url = "file://ARCHIVE", hash = "sha256:HASH" }\n',
         "pyproject.toml": f'{APP}dependencies = ["evil"]\n'}, {},
    ),
    "a lock with a folder": (
        {"env": "env: {lock: uv.lock}\n", "uv.lock": f'{LOCK}source = {{ directory = "evil" }}\n',
         "pyproject.toml": f'{APP}dependencies = ["evil"]\n[tool.uv.sources]\nevil = {{ path = '
         '"evil" }\n'}, {},
    ),
    "a lock of a workspace": (
        {"env": "env: {lock: uv.lock}\n", "uv.lock": f'{LOCK}source = {{ editable = "evil" }}\n',
         "pyproject.toml": f'{APP}dependencies = ["evil"]\n[tool.uv.sources]\nevil = {{ workspace '
         '= true }\n[tool.uv.workspace]\nmembers = ["evil"]\n'}, {},
    ),
    "a lock with a repository": (
        {"env": "env: {lock: uv.lock}\n",
         "uv.lock": f'{LOCK}source = {{ git = "file://HERE/evil#{"0" * 40}" }}\n',
         "pyproject.toml": f'{APP}dependencies = ["evil"]\n[tool.uv.sources]\nevil = {{ git = '
         '"file://HERE/evil" }\n'}, {},
    ),
    "a pylock with a folder": (
        {"env": "env: {lock: pylock.toml}\n",
         "pylock.toml": 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "evil"\n'
         'directory = { path = "evil" }\n'}, {},
    ),
    "a pylock with the source": (
        {"env": "env: {lock: pylock.toml}\n",
         "pylock.toml": 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "evil"\n'
         'version = "1.0"\nsdist = { url = "file://ARCHIVE", hashes = { sha256 = "HASH" } }\n'}, {},
    ),
}  # fmt: skip

READ: Final = {  # what such a file pins is known without a build
    "a lock with the source", "a lock with a repository", "a pylock with the source",
}  # fmt: skip


@pytest.fixture
def attack(sgpu: Shell, tmp_path: Path) -> Callable[[Case], Path]:
    """Writes a case into the project, and returns the file that code of it would leave."""
    mark, index = tmp_path / "mark", tmp_path / "index"
    folder = sgpu.folder / "inner"
    for source in (tmp_path / "evil-1.0", folder / "evil"):
        source.mkdir(parents=True)
        (source / "pyproject.toml").write_text(PROJECT)
        (source / "bk.py").write_text(BACKEND.format(mark=str(mark)))
        (source / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: evil\nVersion: 1.0\n")
    archive = index / "evil/evil-1.0.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(tmp_path / "evil-1.0", "evil-1.0")
    (archive.parent / "index.html").write_text(f'<a href="{archive.name}">{archive.name}</a>')
    # programs of the project that uv and we might call, by the PATH too
    programs = ("python", "python3", "uv", "git", "keyring", "ssh")
    for name in programs:
        shell_program(folder / "bin" / name, f"touch {mark}; exit 1")
        shell_program(folder / ".venv/bin" / name, f"touch {mark}; exit 1")
    (folder / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    words = {
        "INDEX": f"file://{index}",
        "FLAT": str(archive.parent),
        "ARCHIVE": str(archive),
        "HASH": digest,
        "HERE": str(folder),
        "CONFIG": str(tmp_path / "config"),
    }

    def filled(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    def write(case: Case) -> Path:
        files, variables = case
        for name, text in files.items():
            if name == "env":
                sgpu.write("inner/run.yaml", RUN + filled(text))
            else:
                sgpu.write(f"inner/{filled(name)}", filled(text))
        own = os.path.dirname(sys.executable)
        sgpu.environ.update(
            {name: filled(value) for name, value in variables.items()},
            UV_CACHE_DIR=str(tmp_path / "cache"),
            UV_OFFLINE="1",
            XDG_CONFIG_HOME=words["CONFIG"],
            PATH=f"{folder}/bin:{folder}/.venv/bin:{own}:/usr/bin:/bin",
        )
        return mark

    return write


@pytest.mark.parametrize("name", sampled(list(CASES), quick=4))
def test_looking_runs_no_code_of_a_package(
    attack: Callable[[Case], Path], sgpu: Shell, name: str
) -> None:
    mark, folder = attack(CASES[name]), sgpu.folder / "inner"
    planned = sgpu.here("plan", "--out", "saved", cwd=folder)
    assert not mark.exists(), planned
    assert (planned.code == 0) == (name in READ), planned


def test_what_has_to_be_built_is_named_and_is_built_for_who_trusts_it(
    attack: Callable[[Case], Path], sgpu: Shell
) -> None:
    mark, folder = attack(CASES["UV_INDEX_URL"]), sgpu.folder / "inner"
    (found,) = sgpu.error("plan", cwd=folder)["diagnostics"]
    assert (found["code"], found["line"]) == ("build_untrusted", 6)
    assert "`evil` has to be built to learn what it needs" in found["summary"]
    assert "`sgpu plan --trust-project`" in found["hint"]
    for words in (("validate",), ("doctor",), ("status",), ("show", "a"), ("graph",)):
        sgpu.here(*words, cwd=folder)
        assert not mark.exists(), words
    sgpu.here("plan", "--trust-project", cwd=folder)
    assert mark.exists()
    mark.unlink()
    sgpu.here("apply", "-y", cwd=folder)
    assert mark.exists()


@pytest.mark.parametrize("wanted", ["./evil", "evil @ git+file://HERE/evil", "-e ./evil"])
def test_a_source_of_this_machine_is_refused_with_its_line(
    attack: Callable[[Case], Path], sgpu: Shell, wanted: str
) -> None:
    attack(({"env": FILE, "wanted.txt": f"# first\n{wanted}\n"}, {}))
    answer = sgpu.here("plan", "-o", "json", cwd=sgpu.folder / "inner").json
    (found,) = answer["error"]["diagnostics"]
    assert (found["code"], found["file"], found["line"]) == (
        "requirement_local", "wanted.txt", 2,
    )  # fmt: skip


def test_git_of_a_project_runs_none_of_its_programs(sgpu: Shell, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    shell_program(sgpu.folder / "evil.sh", f"touch {mark}")
    sgpu.write("run.yaml", RUN)
    sgpu.write(".gitattributes", "*.yaml filter=evil\n")

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=sgpu.folder, check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "one")
    names = ("core.fsmonitor", "filter.evil.clean", "diff.external", "core.sshCommand")
    for name in (*names, "credential.helper", "core.pager", "core.editor", "gpg.program"):
        git("config", name, f"{sgpu.folder}/evil.sh")
    git("config", "log.showSignature", "true")
    shell_program(sgpu.folder / "bin/git", f"touch {mark}")
    sgpu.environ["PATH"] = f"{sgpu.folder}/bin:{sgpu.environ['PATH']}"
    mark.unlink(missing_ok=True)
    sgpu.write("run.yaml", RUN + "tags: {commit: '${git.commit}', dirty: '${git.dirty}'}\n")
    for words in (("plan",), ("plan", "--base", "HEAD"), ("validate",), ("doctor",)):
        sgpu.here(*words)
        assert not mark.exists(), words
