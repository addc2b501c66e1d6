"""Of a file outside of the project, no message shows a line."""

from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.sampling import sampled

RUN = 'name: a\ngpus: 1\ntype: CPU\ncommand: ["true"]\nmlflow: {enabled: false}\n'
SECRETS = {
    "passwd": "root:x:0:0:hunter2:/root:/bin/hunter2\n",
    "words": "hunter2\n",
    "a path": "/srv/hunter2\n",
    "an editable install": "-e ./hunter2\n",
    "an include": "-r hunter2.txt\n",
    "an address": "-r https://hunter2.invalid/x\n",
    "a login": "-i https://me:hunter2@x.invalid\n",
    "a page": "https://x.invalid/hunter2-1-py3-none-any.whl\n",
    "a wheel": "./hunter2-1-py3-none-any.whl\n",
    "an option": "--hunter2\n",
    "a hash": "hunter2==1 --hash=sha256:00\n",
    "a file of another tool": "@EXPLICIT\nhunter2\n",
}


@pytest.mark.parametrize("name", sampled(list(SECRETS)))
def test_a_line_of_a_file_outside_of_the_project_is_not_shown(
    sgpu: Shell, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("# a comment\n" + SECRETS[name])
    sgpu.environ["UV_OFFLINE"] = "1"
    sgpu.environ["UV_CACHE_DIR"] = str(tmp_path / "cache")
    sgpu.write("included.txt", f"-r {outside}\n")
    sgpu.write("bounds.txt", f"six\n-c {outside}\n")
    (sgpu.folder / "linked.txt").symlink_to(outside)
    for field in (
        f"requirements: {outside}", f"requirements: ../{outside.name}", f"lock: {outside}",
        "requirements: included.txt", "requirements: linked.txt", "requirements: bounds.txt",
        f'dependencies: ["-r {outside}"]',
    ):  # fmt: skip
        sgpu.write("run.yaml", f"{RUN}env: {{{field}}}\n")
        answer = sgpu.here("plan")
        assert "hunter2" not in answer.out + answer.err, (field, answer)
        assert answer.code == 1


def test_its_file_and_line_are_named(sgpu: Shell, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("six\nroot:x:0\n")
    sgpu.write("run.yaml", f"{RUN}env: {{requirements: {outside}}}\n")
    (found,) = sgpu.error("plan")["diagnostics"]
    assert (found["code"], found["file"], found["line"]) == ("bad_requirement", "run.yaml", 6)
    assert found["summary"].startswith(f"line 2 of `{outside}`, which lies outside of the project")


def test_a_lock_outside_of_the_project_is_not_shown_either(sgpu: Shell, tmp_path: Path) -> None:
    outside = tmp_path / "settings.toml"
    outside.write_text("[one]\ntoken = hunter2\n")
    sgpu.write("run.yaml", f"{RUN}env: {{lock: {outside}}}\n")
    answer = sgpu.exits(1, "plan")
    assert "not valid TOML" in answer.err
    assert "hunter2" not in answer.out + answer.err


def test_a_file_of_values_outside_of_the_folder_is_not_shown_either(
    sgpu: Shell, tmp_path: Path
) -> None:
    outside = tmp_path / "values"
    outside.write_text("hunter2\n")
    sgpu.write("run.yaml", RUN)
    answer = sgpu.exits(1, "plan", "--var-file", str(outside))
    assert f"{outside}:1:1" in answer.err
    assert "hunter2" not in answer.out + answer.err
