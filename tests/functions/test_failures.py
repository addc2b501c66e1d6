"""What a caller sees of ranks that fail."""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl import distributed
from sgpu_decl.agent.system.processes import carriers
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_errors import RankFailed
from sgpu_decl.functions.call_results import Results
from sgpu_decl.functions.function import DistributedFunction
from tests.support import PATIENCE, until


def ranks(
    function: Callable[..., object], gpus: int = 2
) -> DistributedFunction[..., Results[object]]:
    return distributed(gpus=gpus, gpu_type="CPU")(function)


def test_a_ranks_exception_is_raised_with_its_type_and_what_it_says_of_itself() -> None:
    def train(rank: int, world_size: int) -> None:
        if rank == 1:
            error = ValueError("boom", rank)
            error.add_note("of mine")
            raise error
        threading.Event().wait()

    with pytest.raises(ValueError, match="boom") as caught:
        ranks(train).distributed()
    error = caught.value
    assert error.args == ("boom", 1)
    assert error.__notes__[0] == "of mine"
    assert "rank 1 of `train#1` failed" in error.__notes__[1]
    cause = error.__cause__
    assert isinstance(cause, RankFailed)
    assert (cause.rank, cause.attempt, cause.failed, cause.failure) == (
        1, "train#1", 1, "exception",
    )  # fmt: skip
    assert "in train\n    raise error" in str(cause)


def test_a_known_failure_is_named_with_what_to_do() -> None:
    def train(rank: int, world_size: int) -> None:
        import einops_that_is_missing  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(ModuleNotFoundError) as caught:
        ranks(train).distributed()
    cause = caught.value.__cause__
    assert isinstance(cause, RankFailed)
    assert "[missing_package: the package or module `einops_that_is_missing` is not" in str(cause)
    assert cause.hint is not None
    assert cause.hint.startswith("add the package to `env.dependencies`")


class Own(Exception):
    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what} ({code})")
        self.code = code


def test_an_exception_whose_class_takes_other_arguments_comes_back_whole() -> None:
    class Local(Own):
        pass

    def train(rank: int, world_size: int) -> None:
        raise Local(5, "mine")

    with pytest.raises(Local, match=r"mine \(5\)") as caught:
        ranks(train).distributed()
    assert caught.value.code == 5


def test_an_exception_leaves_behind_what_cannot_be_pickled() -> None:
    def train() -> None:
        error = ValueError("boom")
        error.code, error.connection = 5, threading.Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(ValueError, match="boom") as caught:
        ranks(train, gpus=1).distributed()
    assert caught.value.code == 5  # type: ignore[attr-defined]
    assert not hasattr(caught.value, "connection")
    assert caught.value.__notes__[0] == "`connection` cannot be pickled and stayed behind"


def test_an_os_error_keeps_its_number() -> None:
    def train() -> None:
        open("/nowhere/at/all", encoding="utf-8").close()

    with pytest.raises(FileNotFoundError) as caught:
        ranks(train, gpus=1).distributed()
    assert (caught.value.errno, caught.value.filename) == (2, "/nowhere/at/all")


def test_several_ranks_that_fail_are_one_error_that_counts_them(project: Path) -> None:
    for number in range(2):
        os.mkfifo(project / f"pipe{number}")

    def train(rank: int, world_size: int) -> None:
        if rank == 0:
            raise ValueError("first")
        raise KeyError(rank)

    with pytest.raises((ValueError, KeyError)) as caught:
        ranks(train, gpus=3).distributed()
    cause = caught.value.__cause__
    assert isinstance(cause, RankFailed)
    if cause.failed > 1:
        assert f"{cause.failed} of 3 ranks failed; this one was the first" in cause.message


def test_a_crash_is_a_failed_rank() -> None:
    def train(rank: int, world_size: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), 11)
        threading.Event().wait()

    with pytest.raises(RankFailed, match=r"rank 1 of `train#1` failed: .*SIGSEGV") as caught:
        ranks(train).distributed()
    assert caught.value.failure == "signal_self"


@pytest.mark.parametrize("code", [0, 3, "words"])
def test_an_exit_inside_of_the_function_is_a_failure(code: object) -> None:
    def train() -> None:
        sys.exit(code)  # type: ignore[arg-type]

    with pytest.raises(RankFailed, match=r"called `sys.exit\(.*\)` and returned nothing"):
        ranks(train).distributed()


def test_a_rank_that_leaves_without_a_word_is_missed() -> None:
    def train() -> None:
        os._exit(0)

    with pytest.raises(RankFailed, match="rank 0 of `train#1` ended without returning"):
        ranks(train).distributed()


def test_what_cannot_be_pickled_on_its_way_back_is_named() -> None:
    def train() -> object:
        return {"model": [1, threading.Lock()]}

    with pytest.raises(
        TypeError, match=r'returned a value that cannot be pickled: `result\["model"\]\[1\]`'
    ):
        ranks(train, gpus=1).distributed()


def test_secrets_are_masked_in_what_is_shown_of_a_call(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr-tlJ9/x")
    (project / "sgpu.yml").write_text(
        "project: {name: p}\nfunctions:\n  mlflow: {enabled: false}\n"
        "  env: {secrets: {TOKEN: env:MY_TOKEN}}\n"
    )

    @distributed(gpus=1, gpu_type="CPU")
    def train(*, fail: bool = False) -> tuple[str]:
        if fail:
            raise ValueError("refused: " + os.environ["TOKEN"])
        return (os.environ["TOKEN"],)

    results = train.distributed()
    assert results == [("s3cr-tlJ9/x",)]
    assert "s3cr-tlJ9/x" not in results._repr_html_()
    with pytest.raises(RankFailed) as caught:
        train.distributed(fail=True)
    assert "ValueError: refused: ***" in str(caught.value)
    assert "s3cr-tlJ9/x" not in str(caught.value)
    out, err = capfd.readouterr()
    assert "s3cr-tlJ9/x" not in out + err
    assert err.count("`train#1` returned holds the value of a secret (`TOKEN`)") == 1


def test_an_interrupt_of_a_rank_is_none_here() -> None:
    def train() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RankFailed, match="KeyboardInterrupt"):
        ranks(train, gpus=1).distributed()


def test_ranks_start_no_ranks() -> None:
    inner = ranks(lambda: 1)

    def train() -> object:
        return inner.distributed()

    with pytest.raises(InvalidInput, match=r"was called inside of rank [01] of `train#1`"):
        ranks(train).distributed()


def test_variables_of_a_rank_that_nobody_started_can_be_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(InvalidInput, match="was called inside of rank 0: ranks") as caught:
        ranks(lambda: 1).distributed()
    assert str(caught.value.hint).endswith("if this is no rank, unset `RANK` and `LOCAL_RANK`")


def test_the_driver_of_a_ray_run_starts_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = {"SGPU_ADDRESS": "run.sweep", "SGPU_ATTEMPT": "3", "RAY_ADDRESS": "127.0.0.1:6379"}
    for name, value in inside.items():
        monkeypatch.setenv(name, value)

    @distributed(gpus=1, gpu_type="CPU")
    def train() -> None: ...

    with pytest.raises(InvalidInput, match="inside of the Ray run `sweep#3`: a run starts no runs"):
        train.distributed()


def test_a_timeout_ends_the_call() -> None:
    def train() -> None:
        threading.Event().wait()

    with pytest.raises(RankFailed) as caught:
        distributed(gpus=2, gpu_type="CPU", timeout=0.5)(train).distributed()
    assert caught.value.failure == "timeout"


class Interrupting(io.StringIO):
    """A stream of a caller who interrupts as soon as a call is said to be launched."""

    def write(self, text: str) -> int:
        if "launched; see" in text:
            raise KeyboardInterrupt
        return super().write(text)


def test_an_interrupt_right_after_the_launch_stops_the_ranks(
    monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    def wait() -> None:
        threading.Event().wait()

    call = distributed(gpus=1, gpu_type="CPU", run_async=True)(wait)
    said = Interrupting()
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(KeyboardInterrupt):
        call.distributed()
    assert _state("wait") == "cancelled"
    assert "wait#1 cancelled" in said.getvalue()


SCRIPT = """
import os, sys, threading
from sgpu_decl import distributed

class Mine(Exception):
    def __init__(self, a, b):
        super().__init__(a)

SCALE = 3

def helper(x):
    return SCALE * x

class Model:
    def __init__(self, x): self.x = helper(x)
    def __eq__(self, other): return type(self) is type(other) and self.x == other.x

@distributed(gpus=2, gpu_type="CPU")
def train(x=SCALE, fail=False):
    if fail:
        raise Mine(1, 2)
    return Model(x)

@distributed(gpus=2, gpu_type="CPU")
def wait(path):
    with open(path, "w") as pipe:
        pipe.write("up")
    threading.Event().wait()

if __name__ == "__main__":
    if sys.argv[1] == "wait":
        wait.distributed(sys.argv[2])
    assert train.distributed() == [Model(3), Model(3)]
    try:
        train.distributed(fail=True)
    except Mine as error:
        print("mine", error.args)
"""


def environment(project: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.expensive
def test_classes_of_a_script_are_the_same_on_both_sides(project: Path) -> None:
    script = project / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, "run"], env=environment(project), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "mine (1,)\n"), done.stderr


@pytest.mark.parametrize("number", [2, 9])
def test_nothing_outlives_a_script_that_is_interrupted_or_killed(
    project: Path, number: int
) -> None:
    script, pipe = project / "train.py", project / "pipe"
    script.write_text(SCRIPT)
    os.mkfifo(pipe)
    called = subprocess.Popen(
        [sys.executable, script, "wait", pipe], env=environment(project), stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with pipe.open() as opened:
        assert opened.read(2) == "up"
    called.send_signal(number)
    _, said = called.communicate(timeout=PATIENCE)
    if number == 2:
        assert called.returncode != 0
        assert "KeyboardInterrupt" in said
        assert "sgpu: wait#1 cancelled" in said
    until(lambda: _state("wait") == "cancelled", lambda: _state("wait"))
    assert carriers(_token(project)) == []


def _state(name: str) -> str:
    from sgpu_decl.functions.running_call import DistributedFunctionCall

    call: DistributedFunctionCall[object] = DistributedFunctionCall.from_run_id(name)
    return str(call.status.state)


def _token(project: Path) -> str:
    import json

    spec = project / ".sgpu" / "default" / "runs" / "wait" / "1" / "spec.json"
    return str(json.loads(spec.read_bytes())["token"])
