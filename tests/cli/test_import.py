"""`sgpu import`: the YAML on stdout or in a new file, and what became of each field."""

from sgpu_decl.cli.import_file import TOOLS
from sgpu_decl.importing import tool_import
from tests.cli.conftest import Shell

WORKLOAD = """\
experiment_name: train
compute: {accelerator_type: GPU_8xH100, num_accelerators: 16, node_pool_id: a}
code_source: {type: snapshot, snapshot: {root_path: ../src}}
command: python train.py
"""


def test_the_yaml_goes_to_stdout_and_the_fields_to_stderr(sgpu: Shell) -> None:
    sgpu.write("theirs.yaml", WORKLOAD)
    done = sgpu.done("import", "theirs.yaml")
    assert "name: train\n" in done.out
    assert "carried  experiment_name -> name\n" in done.err
    assert "lost     compute.node_pool_id: " in done.err
    assert 'default  max_retries -> retry.max = 3, retry.on = ["infra", "error"]; ' in done.err
    assert "theirs.yaml: 6 carried, 0 changed, 1 lost; 3 defaults of the tool\n" in done.err


def test_the_file_that_is_written_is_valid_and_in_the_format(sgpu: Shell) -> None:
    (sgpu.folder / "a").mkdir()
    sgpu.write("a/theirs.yaml", WORKLOAD)
    done = sgpu.done("import", "a/theirs.yaml", "--write", "runs/train.yaml")
    assert "wrote `runs/train.yaml`" in done.err
    assert done.out == ""
    assert "root: ../src\n" in (sgpu.folder / "runs/train.yaml").read_text()
    sgpu.done("validate", "runs/train.yaml")
    sgpu.done("fmt", "--check", "runs/train.yaml")
    refused = sgpu.error("import", "a/theirs.yaml", "--write", "runs/train.yaml")
    assert refused["code"] == "exists"


def test_the_answer_as_json(sgpu: Shell) -> None:
    sgpu.write("theirs.yaml", WORKLOAD)
    data = sgpu.data("import", "theirs.yaml")
    assert (data["tool"], data["file"], data["written"]) == ("air", "theirs.yaml", None)
    (lost,) = [one for one in data["fields"] if one["fate"] == "lost"]
    assert lost["field"] == "compute.node_pool_id"
    assert (lost["file"], lost["line"], lost["to"]) == ("theirs.yaml", 2, [])
    assert lost["note"]
    assert lost["hint"]
    assert {one["field"] for one in data["defaults"]} == {
        "backend", "max_retries", "environment.version",
    }  # fmt: skip


def test_a_file_of_no_known_tool_is_asked_about(sgpu: Shell) -> None:
    sgpu.write("theirs.yaml", "run: python train.py\n")
    refused = sgpu.error("import", "theirs.yaml")
    assert refused["code"] == "unknown_tool"
    assert "--from" in refused["hint"]
    assert "command: |" in sgpu.done("import", "theirs.yaml", "--from", "skypilot").out


def test_other_commands_name_it(sgpu: Shell) -> None:
    sgpu.write("theirs.yaml", "type: task\ncommands: [python train.py]\n")
    (found,) = sgpu.error("plan", "theirs.yaml")["diagnostics"]
    assert found["hint"].startswith("`sgpu import theirs.yaml`")


def test_the_command_names_each_tool() -> None:
    assert set(TOOLS) == set(tool_import.TOOLS)
