"""Which files count: by what a run starts, imports and names."""

import json

import pytest

from sgpu_decl.code.counted_code import CodeTree, CountedCode, counted_code, kinds_of
from sgpu_decl.code.snapshot import snapshot
from tests.code.conftest import Plant

TREE = {
    "NOTES.md": "",
    "README.md": "",
    "docs/a.md": "",
    "nb/a.ipynb": "{}",
    "prompts/system.md": "",
    "tests/conftest.py": "",
    "tests/data/x.json": "",
    "tests/helpers.py": "",
    "tests/test_a.py": "import train\n",
    "lib/core.py": "",
    "train.py": "def main(): ...\n",
}
ALWAYS = {"lib/core.py", "prompts/system.md", "train.py"}
TESTS = {"tests/conftest.py", "tests/data/x.json", "tests/helpers.py", "tests/test_a.py"}


def counting(plant: Plant, files: dict[str, str], **uses: object) -> set[str]:
    """The files that count; all of them where that cannot be told."""
    root = plant({**TREE, **files})
    code, findings = snapshot(root)
    assert code is not None, findings
    tree = CodeTree(code)
    counted: CountedCode = counted_code(tree, tree.uses(**uses))  # type: ignore[arg-type]
    assert not set(counted.reached) & set(counted.uncounted)
    own = {entry.path for entry in code.entries} - (set(files) - set(TREE))
    return own - set(counted.uncounted)


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("README.md", False), ("readme.rst", False), ("README.de.md", False), ("LICENSE", False),
        ("LICENSE-MIT", False), ("CHANGELOG.md", False), ("NOTES.txt", False),
        ("CITATION.cff", False),
        ("notes.txt", True), ("install", True), ("prompt.md", True), ("sub/README.md", True),
        ("docs/a/b.png", False), ("doc/a.md", True), (".github/workflows/ci.yml", False),
        (".gitlab-ci.yml", False), (".devcontainer/x", False), ("a/b.ipynb", False),
        ("test_a.py", False), ("a/b_test.py", False), ("a/conftest.py", False), ("test.py", True),
        ("config.yaml", True), ("data/tests.csv", True), ("pyproject.toml", True),
    ],
)  # fmt: skip
def test_the_kinds_of_files_that_do_not_count_by_themselves(path: str, counts: bool) -> None:
    assert (path not in kinds_of([path])) == counts


def test_a_folder_called_test_is_one_of_tests_only_if_it_holds_some() -> None:
    assert kinds_of(["test/a.png", "test/b.py"]) == {}
    assert set(kinds_of(["test/a.png", "test/sub/test_b.py"])) == {
        "test/a.png",
        "test/sub/test_b.py",
    }


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("import lib.core", set()),
        ("import tests.helpers", {"tests/helpers.py"}),
        ("from tests import helpers", {"tests/helpers.py"}),
        ("from tests.helpers import *", {"tests/helpers.py"}),
        ("try:\n    import tests.helpers\nexcept ImportError: pass", {"tests/helpers.py"}),
        ("def f():\n    from tests.test_a import x", {"tests/test_a.py"}),
        ("import sys\nsys.path.append('x')\nimport helpers", {"tests/helpers.py"}),
        ("import importlib\nimportlib.import_module('tests.helpers')", {"tests/helpers.py"}),
        ("import importlib\nimportlib.import_module(f'tests.{x}')", TESTS - {"tests/data/x.json"}),
        ("import importlib\nimportlib.import_module(f'lib.{x}')", set()),
        ("import importlib.util as u\nu.find_spec(f'tests.{x}')", TESTS - {"tests/data/x.json"}),
        ("import importlib\nimportlib.import_module(name)", TESTS - {"tests/data/x.json"}),
        ("open('README.md')", {"README.md"}),
        (
            "from pathlib import Path\n(Path(__file__).parent / 'docs' / 'a.md').read_text()",
            {"docs/a.md"},
        ),
        ("import os\nos.listdir('docs')", {"docs/a.md"}),
        ("D = 'docs'\ndef f(n): return open(D + '/' + n)", {"docs/a.md"}),
        ("import glob\nglob.glob('*.md')", {"NOTES.md", "README.md", "docs/a.md"}),
        ("import subprocess\nsubprocess.run(['x', 'nb/a.ipynb'])", {"nb/a.ipynb"}),
        ("import runpy\nrunpy.run_path('tests/test_a.py')", {"tests/test_a.py"}),
        ('"""See README.md."""', set()),
        ('"README.md"', set()),
        ("from pathlib import Path\nlist(Path('.').rglob('*'))", set(TREE) - ALWAYS),
        ("def f(:", set(TREE) - ALWAYS),
    ],
)  # fmt: skip
def test_what_the_source_of_an_entrypoint_reaches(
    plant: Plant, source: str, reached: set[str]
) -> None:
    assert counting(plant, {"train.py": source}, entrypoint="train.py:main") == ALWAYS | reached


DOCS = {"docs/a.md", "docs/part_1.txt", "docs/part_2.txt"}


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("open(f'docs/part_{i}.txt')", DOCS),
        ("open('docs/part_%d.txt' % i)", DOCS),
        ("open('docs/part_{}.txt'.format(i))", DOCS),
        ("FORM = 'docs/part_{n:03}.txt'\nopen(FORM.format(n=i))", DOCS),
        ("open('docs/part_' + str(i) + '.txt')", DOCS),
        ("START = 'docs/part_'\nopen(START)", DOCS - {"docs/a.md"}),
        ("from pathlib import Path\nopen(Path(__file__).parent / f'docs/part_{n}.txt')", DOCS),
        ("open(f'NOTES{x}.md')", {"NOTES.md"}),
        ("open(ROOT + '/docs/a.md')", {"docs/a.md"}),
        ("open(f'{ROOT}/docs/a.md')", {"docs/a.md"}),
        ("import os\nopen(os.getcwd() + '/docs/a.md')", {"docs/a.md"}),
        ("import os\nos.system('python tests/helpers.py --n 3')", {"tests/helpers.py"}),
        (
            "import subprocess\nsubprocess.run('cd x;cat docs/a.md|wc', shell=True)",
            {"docs/a.md"},
        ),
        ("import subprocess\nsubprocess.run(['bash', 'gen.sh'])", {"tests/data/x.json"}),
        ("print(f'{x:.3f}s, {n}d', 'step %d: %.2f' % (i, y))", set()),
        ("get(f'https://example.com/{name}')", set()),
    ],
)
def test_what_a_path_that_is_computed_in_part_may_mean(
    plant: Plant, source: str, reached: set[str]
) -> None:
    files = {"train.py": source, "gen.sh": "# README.md\ncp tests/data/x.json out\n"}
    plant(dict.fromkeys(DOCS, ""))
    assert counting(plant, files, entrypoint="train.py:main") - {"gen.sh"} == ALWAYS | reached


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("conf/a.yml", "vocab: docs/a.md  # not README.md\n"),
        ("conf/a.json", '{"vocab":"/docs/a.md"}'),
        ("conf/a.toml", "vocab = ['docs/a.md']"),
        ("conf/a.yaml", "vocab: ${root}/docs/a.md"),
    ],
)
def test_what_settings_name_counts(plant: Plant, path: str, text: str) -> None:
    files = {path: text, "pyproject.toml": 'readme = "README.md"\ntestpaths = ["tests"]\n'}
    assert counting(plant, files, entrypoint="train.py") == ALWAYS | {"docs/a.md"}


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("import pytest\npytest.main(['-q'])", TESTS),
        ("import subprocess\nsubprocess.run(['pytest', '-q'])", TESTS),
        ("import unittest\nunittest.TestLoader().discover(where)", TESTS),
        ("import os\nos.listdir()", set(TREE) - ALWAYS),
        ("import os\nos.system('cat *')", set(TREE) - ALWAYS),
        ("import subprocess as s\ns.run(['tar', 'cf', 'x.tar', '.'])", set(TREE) - ALWAYS),
        ("import subprocess as s\ns.check_output('ls -1', shell=True)", set(TREE) - ALWAYS),
        ("import subprocess as s\ns.run('git status', shell=True)", set()),
        ("from pathlib import Path\nlist(Path.cwd().iterdir())", set(TREE) - ALWAYS),
        (
            "from pathlib import Path\nlist(Path(__file__).resolve().parents[0].iterdir())",
            set(TREE) - ALWAYS,
        ),
        ("import glob\nglob.glob('*')", set(TREE) - ALWAYS),
        ("import shutil\nshutil.make_archive('x', 'zip', '.')", set(TREE) - ALWAYS),
        ("from base import ROOT\nlist((ROOT / 'tests').iterdir())", TESTS),
        ("from base import ROOT\nopen(ROOT / '../data/x.json')", {"tests/data/x.json"}),
        (
            "from pathlib import Path\nPath(x).with_suffix('.md')",
            {"NOTES.md", "README.md", "docs/a.md"},
        ),
        ('"""Use it.\n\n--a  [default: docs/a.md]"""\ndocopt(__doc__)', {"docs/a.md"}),
        ("import os\nos.listdir(b'docs')", {"docs/a.md"}),
        ("import subprocess\nsubprocess.run(['python', '-m', 'worker'])", {"tests/helpers.py"}),
        ("import os\nos.system('python -um worker')", {"tests/helpers.py"}),
        ("import os\nos.system('./tool')", {"docs/a.md"}),
        ("import nb.b", {"tests/helpers.py"}),
        ("from importlib.resources import files\nfiles('tests.data')", {"tests/data/x.json"}),
        ("from importlib import import_module as load\nload(name)", TESTS - {"tests/data/x.json"}),
        ("exec('from worker import *')", {"tests/helpers.py"}),
        ("exec('import ' + name)", TESTS - {"tests/data/x.json"}),
        ("raise ImportError('import ' + name + ' failed')", set()),
        ("print('a * b', '.', '*')", set()),
        ("print(f'{name}.md'[:-3])", {"NOTES.md", "README.md", "docs/a.md"}),
    ],
)
def test_what_may_be_reached_otherwise(plant: Plant, source: str, reached: set[str]) -> None:
    cell = ["!ls\n", "import tests.helpers"]
    files = {
        "train.py": source,
        "worker.py": "import tests.helpers\n",
        "tool": "#!/bin/sh\ncat docs/a.md\n",
        "nb/b.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": cell}]}),
    }
    added = {"worker.py", "tool", "nb/b.ipynb"}
    assert counting(plant, files, entrypoint="train.py:main") - added == ALWAYS | reached


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("conf/a.yaml", "files: [x, docs/my file.md]\n"),
        ("conf/a.yaml", "vocab: docs/my file.md\n"),
        ("conf/a.yaml", "vocab: {file: docs/my file.md}\n"),
        ("conf/a.json", '{"vocab": "docs/my file.md"}'),
        ("conf/a.ini", "[x]\nvocab = docs/my file.md\n"),
        ("files.txt", "docs/my file.md\n"),
        ("files.csv", "docs/my file.md,1\n"),
        ("pyproject.toml", "[tool.x]\nvocab = 'docs/my file.md'\n"),
    ],
)
def test_what_lists_name_counts(plant: Plant, path: str, text: str) -> None:
    files = {path: text, "train.py": "open(HERE / 'pyproject.toml')", "docs/my file.md": ""}
    plant(TREE)
    root = plant(files)
    code, _ = snapshot(root)
    assert code is not None
    tree = CodeTree(code)
    reached = counted_code(tree, tree.uses(entrypoint="train.py")).reached
    assert set(reached) == {"docs/my file.md"}


def test_words_of_texts_are_no_paths(plant: Plant) -> None:
    files = {"vocab.txt": "tests\ndocs\npytest\n", "requirements.txt": "-r docs/a.md\n"}
    assert counting(plant, files, entrypoint="train.py") == ALWAYS


def test_imports_are_followed_through_files_that_count(plant: Plant) -> None:
    files = {
        "train.py": "from lib import core\n",
        "lib/core.py": "from . import deep\n",
        "lib/deep.py": "from ..lib.deeper import x\n",
        "lib/deeper.py": "import tests.helpers\n",
        "tests/helpers.py": "open('docs/a.md')\n",
    }
    expected = ALWAYS | {"tests/helpers.py", "docs/a.md"}
    assert counting(plant, files, entrypoint="train.py") == expected
    assert counting(plant, files, entrypoint="lib.deep:main") == expected


EVERYTHING = set(TREE)


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        (["python", "train.py", "--lr", "1"], ALWAYS),
        ("python -u train.py > out.txt 2>&1", ALWAYS),
        ("cd lib && python ../train.py", EVERYTHING),
        ("cd lib && python core.py", ALWAYS),
        ("ls -l; python train.py", EVERYTHING),
        ("ls /data; python train.py", ALWAYS),
        ("X=1 torchrun --nproc_per_node 2 train.py --a b", ALWAYS),
        ("python -m torch.distributed.run train.py", ALWAYS),
        ("accelerate launch --config_file a.yaml -m lib.core", ALWAYS),
        ("python -m lib.core", ALWAYS),
        ("python -m installed.elsewhere", EVERYTHING),
        ("uv run --no-sync python train.py", ALWAYS),
        ("nvidia-smi; pip install -r r.txt && exec python train.py", ALWAYS),
        ("# a note\nset -x\nif [ -f a ]; then\n  python train.py\nfi", ALWAYS),
        ("python -c 'import tests.helpers'", ALWAYS | {"tests/helpers.py"}),
        ("python train.py --data tests/data", ALWAYS | {"tests/data/x.json"}),
        ("python train.py --notes=NOTES.md", ALWAYS | {"NOTES.md"}),
        ("cat README.md", ALWAYS | {"README.md"}),
        ("python train.py --docs $PWD/docs/a.md", ALWAYS | {"docs/a.md"}),
        (
            "python train.py --docs docs/${RANK}.md",
            ALWAYS | {"NOTES.md", "README.md", "docs/a.md"},
        ),
        ("bash run.sh", ALWAYS),
        ("sh -c 'python train.py'", ALWAYS),
        ("pytest tests/", ALWAYS | TESTS),
        ("python -m pytest", ALWAYS | TESTS),
        ("papermill nb/a.ipynb out.ipynb", EVERYTHING),
        ("make train", EVERYTHING),
        ("$RUNNER train.py", EVERYTHING),
        ("python train.py $(ls)", EVERYTHING),
        ("python < train.py", EVERYTHING),
        ("bash other.sh", EVERYTHING),
        ("python 'train.py", EVERYTHING),
        (["./tool"], EVERYTHING),
        ("python train.py --folder .", EVERYTHING),
        ("cat *", EVERYTHING),
        ("cat {docs/a.md,train.py}", ALWAYS | {"docs/a.md"}),
        ("python train.py files=[x,docs/a.md]", ALWAYS | {"docs/a.md"}),
        ("python train.py @docs/a.md", ALWAYS | {"docs/a.md"}),
        ("nohup make -C python", EVERYTHING),
        ("timeout -k 5 30 python train.py", ALWAYS),
        ("uv run --with pytest tool", EVERYTHING),
        (["true"], ALWAYS),
    ],
)
def test_what_a_command_reaches(plant: Plant, command: str | list[str], counts: set[str]) -> None:
    files = {"run.sh": 'set -eu\n# starts it\nexec python train.py "$@"\n'}
    assert counting(plant, files, command=command) == counts


def test_what_the_run_names_counts(plant: Plant) -> None:
    words = (
        ("args.data", "tests/data"),
        ("parameters.prompt", "docs/a.md"),
        ("args.x", "a=NOTES.md"),
    )
    reached = {"tests/data/x.json", "docs/a.md", "NOTES.md"}
    assert counting(plant, {}, entrypoint="train.py", words=words) == ALWAYS | reached
    include = ("tests/*.py", "/README.md")
    expected = ALWAYS | TESTS - {"tests/data/x.json"} | {"README.md"}
    assert counting(plant, {}, entrypoint="train.py", include=include) == expected
    assert counting(plant, {}, entrypoint="train.py", everything=True) == EVERYTHING


@pytest.mark.parametrize("source", ["open('docs/link/x.json')", "import os\nos.listdir('docs')"])
def test_where_a_link_of_documents_leads_counts_if_it_is_reached(plant: Plant, source: str) -> None:
    (plant(TREE) / "docs" / "link").symlink_to("../tests/data")
    assert "tests/data/x.json" in counting(plant, {"train.py": source}, entrypoint="train.py")
    assert counting(plant, {"train.py": "x = 1"}, entrypoint="train.py") == ALWAYS


def test_where_a_link_leads_counts(plant: Plant) -> None:
    root = plant({})
    (root / "prompt.md").symlink_to("docs/a.md")
    assert counting(plant, {}, entrypoint="train.py") == ALWAYS | {"docs/a.md", "prompt.md"}
