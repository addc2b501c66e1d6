"""`sgpu init`: what it writes is planned as it stands."""

from tests.cli.conftest import Shell


def test_a_project_of_init_has_two_targets_and_a_script_that_is_there(sgpu: Shell) -> None:
    sgpu.write("train.py", "def main(data: str, lr: float = 0.1) -> str:\n    return data\n")
    made = sgpu.here("init", "--project", "--from", "train.py", "-o", "json").json["data"]
    assert made["required"] == ["data"]
    assert sgpu.here("validate").code == 0
    plan = sgpu.here("plan", "-t", "dev", "-o", "json").json["data"]
    fields = {field["path"]: field["after"] for field in plan["changes"][0]["fields"]}
    assert (fields["type"], fields["gpus"]) == ("CPU", 2)
    assert (fields["args.data"], fields["args.lr"]) == ("CHANGE_ME", 0.1)
    assert plan["changes"][0]["code"]["files"] == 1  # the copy of the schema is no code
