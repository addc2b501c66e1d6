"""The header of a script (PEP 723): `sgpu run` uses it, and a plan of a YAML file says that ranks
do not get what it lists."""

import platform
from pathlib import Path

import pytest

from sgpu_decl.api.command_run import command_run
from sgpu_decl.errors import Usage
from tests.cli.conftest import Shell

RUN = "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py\nmlflow: {enabled: false}\n"
OWN = ".".join(platform.python_version().split(".")[:2])


def script(*lines: str) -> str:
    return "".join(
        f"{line}\n" for line in ("#!/usr/bin/env python", "# /// script", *lines, "# ///")
    )


def text_of(tmp_path: Path, *lines: str, header: bool = True) -> str:
    path = tmp_path / "train.py"
    path.write_text(script(*lines))
    return command_run([str(path)], name="a", gpus=1, type_="CPU", header=header)


def test_sgpu_run_takes_packages_and_python_of_the_header(tmp_path: Path) -> None:
    packages = (
        "# dependencies = [",
        '#   "six>=1.16",',
        "#   'rich[jupyter]; sys_platform != \"win32\"',",
        "# ]",
    )
    newer = f"3.{int(OWN.partition('.')[2]) + 1}"
    text = text_of(tmp_path, f'# requires-python = ">={newer}"', *packages)
    assert 'env: {dependencies: ["six>=1.16", "rich[jupyter]; sys_platform != ' in text
    assert f'python: "{newer}"' in text
    text = text_of(tmp_path, f'# requires-python = ">={OWN}"', *packages)
    assert "python:" not in text
    assert "env:" not in text_of(tmp_path, *packages, header=False)


@pytest.mark.parametrize("specifier", ["<3.10", "==3.9.*", "three"])
def test_a_python_that_ranks_cannot_have_is_refused(tmp_path: Path, specifier: str) -> None:
    with pytest.raises(Usage, match=r"train\.py"):
        text_of(tmp_path, f'# requires-python = "{specifier}"')


@pytest.mark.parametrize(
    "lines", [(), ("# dependencies = [",), ("# dependencies = 3",), ("# [tool.uv]", "# x = 1")]
)
def test_a_header_without_anything_to_use(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert "env:" not in text_of(tmp_path, *lines)


def test_a_plan_says_that_the_header_is_not_used(sgpu: Shell) -> None:
    sgpu.write("train.py", script('# dependencies = ["six>=1.16"]'))

    def found(env: str) -> list[tuple[str, int, str]]:
        sgpu.write("run.yaml", RUN + env)
        checks = sgpu.checks(id="script_header_unused")
        return [(check["severity"], check["place"]["line"], check["hint"]) for check in checks]

    assert found("") == [("info", 2, 'declare them: `env: {dependencies: ["six>=1.16"]}`')]
    sgpu.write("none.txt", "")
    assert found("env: {requirements: none.txt}\n") == []


def test_sgpu_run_plans_with_the_header(sgpu: Shell) -> None:
    sgpu.write("train.py", script('# dependencies = ["no-such-package-of-anybody"]'))
    sgpu.environ["UV_OFFLINE"] = "1"
    refused = sgpu.exits(1, "run", "-y", "--type", "CPU", "train.py")
    assert "no-such-package-of-anybody" in refused.err
    other = sgpu.here(
        "run", "-y", "--type", "CPU", "--set", "env.requirements=none.txt", "train.py"
    )
    assert "no-such-package" not in other.err
    assert "`none.txt`" in other.err
