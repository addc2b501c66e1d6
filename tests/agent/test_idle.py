"""A run that does nothing with what it holds: said while it runs, or ended."""

from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.rendering.spec import IdleSpec, RetrySpec
from tests.progress_reports import REPORT

Make = Callable[..., Any]
WAITS = f"{REPORT}\nreport(0)\nawait_file('go')\n"  # with the first report, measuring begins
WARN = IdleSpec(below=50.0, seconds=1.0)
STOP = IdleSpec(below=50.0, seconds=1.0, stop=True)


def test_an_idle_run_is_said_and_goes_on(make_attempt: Make) -> None:
    attempt = make_attempt(WAITS, idle=WARN).launch()
    attempt.until(lambda: attempt.events("idle"))
    (event,) = attempt.events("idle")
    assert (event["of"], event["count"], event["limit"]) == ("processors", 2, 50.0)
    attempt.until(lambda: attempt.read().get("idle"))
    assert "used a processor at most" in attempt.text("agent.log")
    (attempt.folder / "output" / "go").touch()
    ended = attempt.wait()
    assert ended["state"] == "succeeded"
    assert "idle" not in ended
    attempt.check()


def test_an_idle_run_is_ended_and_not_started_again(make_attempt: Make) -> None:
    retry = RetrySpec(max=2, on=("infra", "error"), backoff=0.01)
    attempt = make_attempt(WAITS, idle=STOP, retry=retry).launch()
    ended = attempt.wait()
    assert (ended["state"], ended["class"], ended["exit_code"]) == ("failed", "timeout", 124)
    assert ended["restart"] == 0
    summary = ended["first_cause"]["summary"]
    assert summary.startswith("each of 2 ranks used a processor at most ")
    assert summary.endswith(" % in the last 1 s: the limit is 50 % (`idle`)")
    assert ended["first_cause"]["rank"] is None
    attempt.check()
    attempt.until_gone()


@pytest.mark.expensive
def test_what_was_seen_of_earlier_ranks_does_not_count(make_attempt: Make) -> None:
    """The first ranks fail while they are idle; those after them work."""
    source = f"""{REPORT}
report(0)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    await_file("go")
    raise OSError("once")
end = time.monotonic() + 4
while time.monotonic() < end:
    pass
"""
    retry = RetrySpec(max=1, on=("error",), backoff=0.01)
    attempt = make_attempt(
        source, idle=IdleSpec(below=4.0, seconds=1.0, stop=False), retry=retry, world_size=1
    ).launch()
    attempt.until(lambda: attempt.events("idle"))
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    assert len(attempt.events("idle")) == 1
