"""Files that are named on the command line and are no files of sgpu."""

import pytest

from tests.cli.conftest import Shell

SBATCH = "#!/bin/bash\n#SBATCH --partition=default\nsrun python train.py\n"


@pytest.mark.parametrize("command", ["plan", "validate", "show"])
def test_a_batch_script_of_slurm_is_named_with_its_page(sgpu: Shell, command: str) -> None:
    sgpu.write("job.sbatch", SBATCH)
    told = sgpu.here(command, "job.sbatch")
    assert told.code == 1
    assert "error[other_tool_file]: `job.sbatch` is a batch script of Slurm" in told.err
    assert "hint: see `docs/coming-from/slurm.md`" in told.err


@pytest.mark.parametrize("name", ["x.plan", "x.json"])
@pytest.mark.parametrize("command", ["apply", "show"])
def test_a_file_that_is_no_saved_plan_is_told_as_that(sgpu: Shell, command: str, name: str) -> None:
    sgpu.write(name, "[1]\n")
    told = sgpu.here(command, name)
    assert told.code == 1
    assert f"error[bad_plan]: `{name}` is not a saved plan, and not a run or project" in told.err
