"""What a project may hold that nothing of sgpu must open, run or show; and which of its files
travel."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, Shell
from tests.support import FUNCTION_RUN as RUN

TRAIN = "def main():\n    return 1\n"
ACCOUNT = json.dumps(
    {"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\n", "project_id": "p"}
)
CLUSTER = "apiVersion: v1\nkind: Config\nclusters: []\nusers:\n- name: me\n  user:\n    token: t0\n"


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", TRAIN)
    return sgpu


def planned_files(project: Shell, *said: str) -> Any:
    answer = project.here("plan", "--files", "-o", "json", *said)
    (files,) = answer.json["data"]["files"]
    return files


def codes(answer: Answer) -> set[str]:
    return {found["code"] for found in answer.json["error"]["diagnostics"]}


@pytest.mark.parametrize("command", ["plan", "validate", "apply"])
def test_a_fifo_in_the_place_of_a_run_file_is_refused_at_once(project: Shell, command: str) -> None:
    os.mkfifo(project.folder / "pipe.yaml")
    refused = project(command, "pipe.yaml")
    assert refused.code == 1
    assert "`pipe.yaml` cannot be read: it is a FIFO, not a file" in refused.err


def test_a_device_in_the_place_of_a_run_file_is_refused(project: Shell) -> None:
    assert "it is a device, not a file" in project("validate", "/dev/zero").err


def test_a_run_file_that_links_out_of_the_project_is_refused(
    project: Shell, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.write_text("password: hunter2\n")
    (project.folder / "linked.yaml").symlink_to(private)
    refused = project.here("validate", "linked.yaml", "-o", "json")
    assert refused.json["error"]["code"] == "unreadable"
    assert f"is a link to `{private}`, outside of the project" in refused.out
    assert "hunter2" not in refused.out


@pytest.mark.parametrize("name", [".gitignore", ".sgpuignore", "lib/.gitignore"])
def test_a_fifo_in_the_place_of_an_ignore_file_is_refused_at_once(
    project: Shell, name: str
) -> None:
    (project.folder / "lib").mkdir()
    os.mkfifo(project.folder / name)
    refused = project("plan")
    assert refused.code == 1
    assert f"`{name}` cannot be read: it is a FIFO, not a file" in refused.err
    assert "hint: put a file in its place, or move it away" in refused.err


def test_an_ignore_file_above_the_code_that_is_a_fifo_does_not_keep_a_plan_waiting(
    sgpu: Shell,
) -> None:
    sgpu.write("sub/run.yaml", RUN)
    sgpu.write("sub/train.py", TRAIN)
    (sgpu.folder / ".git").mkdir()
    os.mkfifo(sgpu.folder / ".gitignore")
    assert sgpu("plan", "sub/run.yaml").code == 0


def test_an_ignore_file_that_links_out_of_the_project_is_refused(
    project: Shell, tmp_path: Path
) -> None:
    (tmp_path / "rules").write_text("*.bin\n")
    (project.folder / ".gitignore").symlink_to(tmp_path / "rules")
    refused = project.here("plan", "-o", "json")
    assert codes(refused) == {"code_unreadable"}
    assert "outside of" in refused.out
    (project.folder / ".gitignore").unlink()
    project.write("rules", "*.bin\n")
    (project.folder / ".gitignore").symlink_to("rules")
    project.done("plan")


def test_a_fifo_among_the_code_is_refused_and_may_be_ignored(project: Shell) -> None:
    os.mkfifo(project.folder / "queue")
    refused = project.here("plan", "-o", "json")
    assert codes(refused) == {"code_special_file"}
    assert "`queue` is a FIFO, which cannot travel with the code" in refused.out
    project.write(".gitignore", "queue\n")
    project.done("plan")


@pytest.mark.parametrize("entry", ["helper.py", "train.py"])
def test_a_module_that_is_a_fifo_does_not_keep_a_plan_waiting(project: Shell, entry: str) -> None:
    project.write("train.py", "import helper\n" + TRAIN)
    (project.folder / entry).unlink(missing_ok=True)
    os.mkfifo(project.folder / entry)
    refused = project("plan")
    assert refused.code == 1
    assert f"`{entry}` is a FIFO" in refused.err
    assert f"did you mean `{entry}`" not in refused.err


def test_a_default_file_that_is_a_fifo_or_leads_nowhere_is_named(project: Shell) -> None:
    (project.folder / "run.yaml").unlink()
    (project.folder / "run.yaml").symlink_to("/nowhere")
    for command in ("plan", "validate"):
        assert "`run.yaml`" in project(command).err
    (project.folder / "run.yaml").unlink()
    os.mkfifo(project.folder / "run.yaml")
    for command in ("plan", "validate"):
        assert "`run.yaml` cannot be read: it is a FIFO, not a file" in project(command).err


def test_a_requirements_file_that_is_a_fifo_does_not_keep_a_plan_waiting(project: Shell) -> None:
    project.write("run.yaml", RUN + "env: {requirements: wanted.txt}\n")
    os.mkfifo(project.folder / "wanted.txt")
    project.write(".gitignore", "wanted.txt\n")
    refused = project("plan")
    assert refused.code == 1
    assert "it is a fifo" in refused.err


def test_files_names_what_travels_and_the_rule_that_keeps_each_other_file_back(
    project: Shell,
) -> None:
    project.write(".gitignore", "# data\n\n/data/\n*.bin\n")
    project.write("lib/.sgpuignore", "notes.md\n")
    project.write("lib/notes.md", "n")
    project.write("lib/kept.py", "x = 1\n")
    project.write("data/train.bin", "0" * 100)
    project.write("lib/w.bin", "w")
    project.write("old/a.py", "")
    project.write("env/pyvenv.cfg", "")
    project.write("raw/x", "x")
    project.write(".env", "S=1")
    project.write("train.log", "log")
    (project.folder / "empty").mkdir()
    project.write("run.yaml", RUN + "code: {exclude: [old], link: [raw]}\n")
    files = planned_files(project)
    assert files["root"] == str(project.folder)
    assert files["digest"].startswith("sha256:")
    assert files["travels"] == [
        {"path": "lib/kept.py", "bytes": 6, "link": None},
        {"path": "train.py", "bytes": len(TRAIN), "link": None},
    ]
    kept = {
        file["path"]: (file["rule"], file["file"], file["line"], file["pattern"])
        for file in files["kept_back"]
    }
    assert kept == {
        "data/": ("gitignore", ".gitignore", 3, "/data/"),
        "lib/w.bin": ("gitignore", ".gitignore", 4, "*.bin"),
        "lib/notes.md": ("sgpuignore", "lib/.sgpuignore", 1, "notes.md"),
        "old/": ("code.exclude", None, None, "old"),
        "raw/": ("code.link", None, None, None),
        ".env": ("secret", None, None, None),
        "env/": ("virtual_environment", None, None, None),
        "run.yaml": ("sgpu_file", None, None, None),
        "train.log": ("never_counts", None, None, None),
        ".gitignore": ("never_counts", None, None, None),
        "lib/.sgpuignore": ("never_counts", None, None, None),
        "empty/": ("empty_folder", None, None, None),
    }
    text = project.here("plan", "--files").out
    assert "    6 B  lib/kept.py\n" in text
    assert "  data/            line 3 of `.gitignore` (`/data/`)\n" in text
    assert "  old/             `old` in `code.exclude`\n" in text
    assert "  .env             such files hold secrets\n" in text
    assert (
        "  run.yaml         it is a run file, a project file, a plan or a schema of these\n" in text
    )
    markdown = project.here("plan", "--files", "-o", "markdown").out
    assert "```\nThe code in `.`, 2 files" in markdown


def test_each_file_of_a_partly_included_folder_is_listed(project: Shell) -> None:
    project.write(".gitignore", "data/\n")
    project.write("data/a.bin", "a")
    project.write("data/b.bin", "b")
    project.write("run.yaml", RUN + "code: {include: [data/a.bin]}\n")
    files = planned_files(project)
    assert [file["path"] for file in files["travels"]] == ["data/a.bin", "train.py"]
    kept = {file["path"]: file["rule"] for file in files["kept_back"]}
    assert kept["data/b.bin"] == "gitignore"
    assert "data/" not in kept


def test_a_rule_above_the_code_is_named_by_the_way_to_it(sgpu: Shell) -> None:
    sgpu.write("sub/run.yaml", RUN)
    sgpu.write("sub/train.py", TRAIN)
    sgpu.write("sub/big.bin", "b")
    (sgpu.folder / ".git").mkdir()
    sgpu.write(".gitignore", "*.bin\n")
    kept = planned_files(sgpu, "sub/run.yaml")["kept_back"]
    found = next(item for item in kept if item["path"] == "big.bin")
    assert (found["file"], found["line"]) == ("../.gitignore", 1)


SECRETS = {
    "account.json": ACCOUNT,
    "cluster.yaml": CLUSTER,
    "tls.key": "-----BEGIN EC PRIVATE KEY-----\nabc\n",
    "api.key": "sk0123456789abcdef0123456789abcdef\n",
    "deploy_key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n",
}
PLAIN = {
    "package.json": '{"type": "module", "private_key": null}',
    "values.yaml": "clusters: [a]\nusers: []\n",
    "talk.key": "PK\x03\x04 slides",
    "public.key": "-----BEGIN PUBLIC KEY-----\nabc\n",
    "labels.key": "0 cat\n1 dog\n",
}


def test_secrets_are_known_by_content_where_the_name_does_not_tell(project: Shell) -> None:
    for name, text in {**SECRETS, **PLAIN}.items():
        project.write(name, text)
    files = planned_files(project)
    assert {file["path"] for file in files["kept_back"] if file["rule"] == "secret"} == set(SECRETS)
    assert {file["path"] for file in files["travels"]} == {*PLAIN, "train.py"}
    project.write("run.yaml", RUN + "code: {include: [account.json]}\n")
    assert codes(project.here("plan", "-o", "json")) == {"secret_included"}


def warned(project: Shell, code: str, more: str = "") -> list[tuple[str, str, str]]:
    """The code, the line and the summary of what a plan says of files."""
    project.write("train.py", code)
    project.write("run.yaml", RUN + more)
    checks = project.data("plan")["checks"]
    return [
        (check["id"], f"{check['place']['file']}:{check['place']['line']}", check["summary"])
        for check in checks
        if check["id"].startswith("file_")
    ]


@pytest.fixture
def data(project: Shell) -> Shell:
    project.write(".gitignore", "data/\n")
    project.write("data/corpus/train.bin", "0")
    return project


PATH = "data/corpus/train.bin"
LEFT_OUT = f"opens `{PATH}`, which is not part of the code: line 1 of `.gitignore` (`data/`)"
OPENING = {
    "open": f"def main():\n    return open('{PATH}', 'rb')\n",
    "a default": f"def main(path='{PATH}'):\n    return open(path)\n",
    "pandas": f"import pandas as pd\ndef main():\n    return pd.read_csv('{PATH}')\n",
    "pathlib": "from pathlib import Path\nROOT = Path('data')\ndef main():\n"
    "    return (ROOT / 'corpus' / 'train.bin').read_bytes()\n",
    "beside the file": "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
    f"def main():\n    return open(os.path.join(HERE, '{PATH}'))\n",
    "nanoGPT": "import os\nimport numpy as np\ndataset = 'corpus'\n"
    "data_dir = os.path.join('data', dataset)\ndef get_batch(split):\n"
    "    return np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint16, mode='r')\n"
    "def main():\n    get_batch('train')\n",
    "argparse": "import argparse\np = argparse.ArgumentParser()\n"
    f"p.add_argument('--data', default='{PATH}')\ndef main():\n    pass\n",
}


@pytest.mark.parametrize("how", OPENING)
def test_a_file_that_the_source_opens_and_an_ignore_rule_keeps_back(data: Shell, how: str) -> None:
    ((code, where, summary),) = warned(data, OPENING[how])
    assert (code, where.partition(":")[0]) == ("file_left_out", "train.py")
    assert summary == f"`train.py` {LEFT_OUT}"
    include = f"code: {{include: [{PATH}]}}\n"
    link = f"code: {{link: [{PATH}]}}\n"
    plan = data.here("plan").out
    assert f"`{include.strip()}`" in plan
    assert f"`{link.strip()}`" in plan
    assert warned(data, OPENING[how], include) == []
    assert warned(data, OPENING[how], link) == []


NOT_OPENING = {
    "writing": f"def main():\n    open('{PATH}', 'w')\n",
    "a name": f"def main():\n    print('{PATH}')\n",
    "what is not there": "def main():\n    open('data/none.bin')\n",
    "what may be another": f"NAME = '{PATH}'\nNAME = 'other'\ndef main():\n    open(NAME)\n",
    "a folder as a default": "import argparse\n"
    "argparse.ArgumentParser().add_argument('--out', default='data')\ndef main():\n    pass\n",
    "what travels": "def main():\n    open('train.py')\n",
}


@pytest.mark.parametrize("how", NOT_OPENING)
def test_other_files_cause_no_warning(data: Shell, how: str) -> None:
    assert warned(data, NOT_OPENING[how]) == []


def test_a_file_that_an_imported_module_or_the_yaml_names(data: Shell) -> None:
    data.write("lib/reader.py", f"def read():\n    return open('{PATH}')\n")
    data.write("lib/__init__.py", "")
    ((_, where, summary),) = warned(data, "from lib.reader import read\ndef main(): read()\n")
    assert (where, summary) == ("lib/reader.py:2", f"`lib/reader.py` {LEFT_OUT}")
    taking = "def main(path): pass\n"
    ((_, where, summary),) = warned(data, taking, f"args: {{path: {PATH}}}\n")
    assert where == "run.yaml:6"
    assert summary.startswith(f"`args.path` names `{PATH}`, which is not part of the code")
    data.write("train.py", f"open('{PATH}')\n")
    command = f"name: a\ngpus: 1\ntype: CPU\ncommand: [python, train.py, --x={PATH}]\n"
    data.write("run.yaml", command)
    said = [check["summary"].partition(",")[0] for check in data.checks(id="file_left_out")]
    assert said == [f"`command` names `{PATH}`", f"`train.py` opens `{PATH}`"]


def test_a_file_outside_of_the_code_is_named(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nruns:\n  a:\n    "
        + "    ".join(f"{line}\n" for line in (*RUN.splitlines()[1:], "code: {root: src}")),
    )
    sgpu.write("data.csv", "1")
    sgpu.write("src/train.py", "def main():\n    open('../data.csv')\n")
    (found,) = sgpu.checks(id="file_outside_code")
    assert "opens `../data.csv`, which lies outside of the code" in found["summary"]


def test_files_of_a_shared_source_are_warned_of_once(data: Shell) -> None:
    runs = "".join(
        f"  r{n}: {{gpus: 1, type: CPU, entrypoint: 'train.py:main', args: {{n: {n}}}}}\n"
        for n in range(3)
    )
    data.write("sgpu.yml", f"project: {{name: p}}\nruns:\n{runs}")
    data.write("train.py", f"def main(n):\n    return open('{PATH}')\n")
    assert len(data.checks("sgpu.yml", id="file_left_out")) == 1


def test_a_code_root_outside_of_the_project_is_a_warning(sgpu: Shell) -> None:
    sgpu.write("runs/run.yaml", RUN + "code: {root: ..}\n")
    sgpu.write("train.py", TRAIN)

    def outside(*said: str) -> list[tuple[str, int]]:
        found = sgpu.checks("runs/run.yaml", *said, id="code_root_outside")
        return [(item["severity"], item["place"]["line"]) for item in found]

    assert outside() == [("warning", 6)]
    assert outside("--project", ".") == []
    (sgpu.folder / ".git").mkdir()  # the repository is the project
    assert outside() == []


def test_an_included_path_without_effect_is_a_warning(project: Shell) -> None:
    project.write("old/train.pyc", "log")
    project.write("deep/er/vocab.txt", "a")
    project.write(
        "run.yaml",
        RUN + "code: {include: [vocab.txt, old/train.pyc, typo.txt, '*.bin']}\n",
    )
    checks = project.checks(id="include_unused")
    said = [(check["summary"], check["severity"]) for check in checks]
    never = "is left out: files of this name are never code"
    assert said == [
        (f"`old/train.pyc` in `code.include` {never}", "warning"),
        ("`typo.txt` in `code.include` matches no file", "warning"),
    ]


@pytest.mark.parametrize(
    ("root", "what"),
    [("/", "the whole file system"), ("/usr", "a folder of the system"),
     ("HOME", "the home folder"),
     ("HOME/..", "a folder of home folders")],
)  # fmt: skip
def test_a_root_of_the_code_that_nobody_means_is_one_error_and_is_not_read(
    project: Shell, tmp_path: Path, root: str, what: str
) -> None:
    home = tmp_path / "people" / "me"
    home.mkdir(parents=True)
    shell = replace(project, environ={**project.environ, "HOME": str(home)})
    named = root.replace("HOME", str(home))
    project.write("run.yaml", f"{RUN}code: {{root: {named}}}\n")
    (check,) = shell.checks(severity="error")
    assert check["id"] == "code_root_too_wide"
    assert f"{what}: all files there would be copied" in check["summary"]
