"""What jobs may say, and what is wrong with one is told at its place."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, available_timezones, reset_tzpath

import pytest

from sgpu_decl.config.job import Trigger
from sgpu_decl.config.schedule import known_zones, refuse_cron
from sgpu_decl.config.text_types import Duration
from tests.config.conftest import outcome
from tests.support import some

HEAD = "jobs:\n  j:\n    notebook: {path: /Workspace/x}\n"


@pytest.mark.parametrize(
    ("fields", "code", "place"),
    [
        ("    schedule: 0 2 * * 1\n", "bad_cron", "4:15"),
        ("    schedule: 0 30 2 * * *\n", "bad_cron", "4:15"),
        ("    schedule: '@daily'\n", "bad_cron", "4:15"),
        ("    schedule: 0 30 2 * * ?\n    trigger: {every: 6h}\n", "contradiction", "2:3"),
        ("    trigger: {every: 90s}\n", "bad_duration", "4:22"),
        ("    trigger: {}\n", "contradiction", "4:5"),
        ("    trigger: {every: 6h, table_update: [a.b.c]}\n", "contradiction", "4:5"),
        ("    trigger: {table_update: [events]}\n", "bad_table", "4:15"),
        ("    trigger: {file_arrival: /Volumes/a}\n", "bad_path", "4:29"),
        ("    on_overlap: wait\n", "unknown_value", "4:17"),
        ("    pasued: true\n", "unknown_key", "4:5"),
        ("    timezone: ''\n", "empty_value", "4:5"),
        ("    timezone: Europe/Berln\n", "unknown_timezone", "4:15"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(
    bad: Callable[..., Any], fields: str, code: str, place: str
) -> None:
    (found,) = bad(HEAD + fields, "sgpu.yml")
    assert (found.code, str(found.place)) == (code, f"sgpu.yml:{place}")


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("H1000", "known in that series: `H100`, `H20`"),
        ("GPU_8xH10O", "did you mean `GPU_8xH100`?"),
        ("CPU", "leave it out"),
    ],
)
def test_the_gpu_of_a_notebook_is_one_by_its_name(
    bad: Callable[..., Any], kind: str, hint: str
) -> None:
    text = f"jobs:\n  j:\n    notebook: {{path: /Workspace/x, type: {kind}}}\n"
    (found,) = bad(text, "sgpu.yml")
    assert (found.code, str(found.place)) == ("unknown_gpu_type", "sgpu.yml:3:42")
    assert hint in found.hint


@pytest.mark.parametrize(
    ("unix", "quartz"),
    [
        ("0 2 * * *", "0 0 2 * * ?"),
        ("*/15 8-18 * * 1-5", "0 */15 8-18 ? * 2-6"),
        ("0 0 1 * *", "0 0 0 1 * ?"),
        ("0 12 * * 0,7", "0 0 12 ? * 1,1"),
        ("0 12 * * MON", "0 0 12 ? * MON"),
    ],
)
def test_unix_cron_is_answered_with_the_same_in_quartz(unix: str, quartz: str) -> None:
    assert some(refuse_cron(unix))[1] == f"write `{quartz}`"
    assert refuse_cron(quartz) is None


@pytest.mark.parametrize(
    "text",
    [
        "0 60 25 * * ?", "60 0 0 * * ?", "0 0 24 * * ?", "0 0 0 0 * ?", "0 0 0 32 * ?",
        "0 0 0 * 13 ?", "0 0 0 ? * 8", "0 0 0 ? * 0", "0 0 0 * * ? 1969", "0 0/60 0 * * ?",
        "0 0 0-24 * * ?", "0 0 0 1,? * *", "0 0 0 ? * MON#6", "0 0 0 ? * FOO", "0 -1 0 * * ?",
        "0 0 0 * * *", "0 0 0 1 * MON", "0 0 0 ? * ?", "0 ? 0 * * ?", "0 0 0 1 * 1",
        "61 2 * * *", "0 25 * * *", "0 2 1 * 1", "0 2 * * 8", "@hourly", "@reboot", "a b", "",
        "*/15 8-18 * * 1-5", "0 0 29 2 *", "0 0 * * sun", "5 4 * * 5-7", "0 2 L * *",
    ],
)  # fmt: skip
def test_what_a_hint_says_to_write_is_right(text: str) -> None:
    refused = some(refuse_cron(text))
    for written in re.findall(r"`([^`]+)`", refused[1]):
        assert refuse_cron(written) is None, written


@pytest.mark.parametrize(
    "text",
    [
        "0 0 12 * * ?", "0 15 10 ? * *", "0 15 10 * * ? 2027", "0 0/5 14,18 * * ?",
        "0 0-5 14 * * ?",
        "0 10,44 14 ? 3 WED", "0 15 10 ? * MON-FRI", "0 15 10 15 * ?", "0 15 10 L * ?",
        "0 15 10 L-2 * ?", "0 15 10 LW * ?", "0 15 10 15W * ?", "0 15 10 ? * 6L",
        "0 15 10 ? * 6L 2026-2029", "0 15 10 ? * 6#3", "0 0 12 1/5 * ?", "0 11 11 11 11 ?",
        "0 0 22-2 ? * FRI-MON", "* * * * jan-mar ?", "0 /10 * * * ?", "0 0 0 ? * L",
    ],
)  # fmt: skip
def test_the_examples_of_quartz_are_right(text: str) -> None:
    assert refuse_cron(text) is None


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("UTC+2", "`Etc/GMT-2`, which is 2 h ahead of UTC"),
        ("GMT-05:00", "`Etc/GMT+5`, which is 5 h behind UTC"),
        ("+0100", "`Etc/GMT-1`"),
        ("UTC+5:30", "name a place"),
        ("UTC+19", "name a place"),
        ("europe/berlin", "`Europe/Berlin`"),
    ],
)
def test_a_time_zone_is_one_by_its_name(bad: Callable[..., Any], zone: str, hint: str) -> None:
    (found,) = bad(f"{HEAD}    timezone: '{zone}'\n", "sgpu.yml")
    assert found.code == "unknown_timezone"
    assert hint in found.hint
    for written in re.findall(r"`([^`]+)`", found.hint):
        assert written in available_timezones()


@pytest.fixture
def bare_machine(tmp_path: Path) -> Iterator[None]:
    """A machine whose list of zones lacks their former names."""
    names = ("Africa/Cairo", "America/Los_Angeles", "Asia/Kathmandu", "Asia/Kolkata")
    for name in (*names, "Europe/Berlin", "Europe/Kyiv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"TZif")
    before = TZPATH
    reset_tzpath([tmp_path])
    known_zones.cache_clear()
    yield
    reset_tzpath(before)
    known_zones.cache_clear()


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(
    "zone",
    [
        "US/Pacific",
        "Asia/Calcutta",
        "Europe/Kiev",
        "Asia/Katmandu",
        "EST5EDT",
        "GB",
        "Asia/Kolkata",
    ],
)
def test_a_former_name_of_a_zone_is_right_where_the_machine_lacks_it(
    good: Callable[..., Any], zone: str
) -> None:
    assert good(f"{HEAD}    timezone: {zone}\n", "sgpu.yml").jobs[0].config.timezone == zone


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("zone", ["US/Pacfic", "Asia/Kalcutta", "europe/kyiv", "UTC+2"])
def test_a_name_that_is_like_a_known_one_is_refused(bad: Callable[..., Any], zone: str) -> None:
    (found,) = bad(f"{HEAD}    timezone: {zone}\n", "sgpu.yml")
    assert (found.code, found.severity) == ("unknown_timezone", "error")


def test_a_zone_that_is_like_no_other_is_left_to_the_platform() -> None:
    loaded, (found,) = outcome(f"{HEAD}    timezone: Mars/Base\n", "sgpu.yml")
    assert loaded is not None
    assert (found.code, found.severity) == ("unknown_timezone", "warning")
    assert str(found.place) == "sgpu.yml:4:15"


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("90m", (90, "MINUTES")),
        ("6h", (6, "HOURS")),
        ("36h", (36, "HOURS")),
        ("48h", (2, "DAYS")),
        ("14d", (2, "WEEKS")),
    ],
)
def test_a_period_is_the_largest_unit_that_fits(text: str, period: tuple[int, str]) -> None:
    assert Trigger(every=Duration.read(text)).period == period


def test_a_run_with_a_matrix_is_no_job(bad: Callable[..., Any]) -> None:
    text = (
        "runs: {a: {gpus: 1, type: CPU, entrypoint: 'm:f', matrix: {x: [1, 2]}}}\n"
        "jobs: {j: {run: a}}\n"
    )
    (found,) = bad(text, "sgpu.yml")
    assert (found.code, str(found.place)) == ("run_of_matrix", "sgpu.yml:2:17")


def test_a_target_has_a_mode_and_may_add_a_job(good: Callable[..., Any]) -> None:
    text = HEAD + "targets: {dev: {mode: development, jobs: {k: {notebook: {path: /W}}}}}\n"
    loaded = good(text, "sgpu.yml", "dev")
    assert (str(loaded.mode), [job.address.name for job in loaded.jobs]) == (
        "development", ["j", "k"],
    )  # fmt: skip
    assert good(text, "sgpu.yml", None).config_digest != loaded.config_digest
