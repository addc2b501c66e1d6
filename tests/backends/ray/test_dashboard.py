"""The client of a dashboard: one connection, the token where it is asked for, errors in words."""

import socket
import time
from contextlib import closing

import pytest

from sgpu_decl.backends.ray.api import dashboard_connection
from sgpu_decl.backends.ray.api.dashboard import Dashboard, Refused
from sgpu_decl.backends.ray.api.dashboard_address import DEFAULT_ADDRESS, DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_connection import TimeBudget, budgeted
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.places.file_place import PlaceMissing
from tests.backends.ray.answers import answering

VERSION = {"ray_version": "2.60.0"}
TOKEN = Credentials(token="t-1", source="`RAY_AUTH_TOKEN`")


def test_all_requests_take_one_connection() -> None:
    with answering({"/api/version": VERSION}) as answers, closing(answers.dashboard()) as ray:
        assert [ray.get("/api/version") for _ in range(5)] == [VERSION] * 5
        ray.put("/api/version", b"x" * 1000)
        assert ray.post("/api/version", {"a": 1}) == VERSION
        assert ray.find("/nothing") is None
        assert answers.connections == 1


def test_a_token_is_sent_to_whom_asks_for_one() -> None:
    with (
        answering({"/api/version": VERSION}, token="t-1") as answers,
        closing(answers.dashboard(TOKEN)) as ray,
    ):
        assert ray.get("/api/version") == VERSION
        ray.get("/api/version")
        assert [token for _, token in answers.requests] == [None, "Bearer t-1", "Bearer t-1"]
        assert ray.requires_token is True


def test_a_token_is_not_sent_to_others() -> None:
    with answering({"/api/version": VERSION}) as answers, closing(answers.dashboard(TOKEN)) as ray:
        ray.get("/api/version")
        ray.post("/api/version", {})
        assert {token for _, token in answers.requests} == {None}
        assert ray.requires_token is False


def test_a_request_that_changes_something_is_sent_once() -> None:
    with (
        answering({"/api/version": VERSION, "/api/jobs/": {}}, token="t-1") as answers,
        closing(answers.dashboard(TOKEN)) as ray,
    ):
        ray.post("/api/jobs/", {"a": 1})
        assert [request for request, _ in answers.requests if request.startswith("POST")] == [
            "POST /api/jobs/"
        ]


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        (Credentials(), "needs a token, and none was found"),
        (Credentials(token="t-2", source="`RAY_AUTH_TOKEN`"), "token of `RAY_AUTH_TOKEN`"),
    ],
)
def test_a_token_that_is_missing_or_wrong(credentials: Credentials, message: str) -> None:
    with (
        answering({}, token="t-1") as answers,
        closing(answers.dashboard(credentials)) as ray,
        pytest.raises(BackendError, match=message) as raised,
    ):
        ray.get("/api/version")
    assert raised.value.code == "unauthenticated"
    assert "`~/.ray/auth_token`" in raised.value.hint
    assert "t-2" not in str(raised.value)


TRACEBACK = """\
Traceback (most recent call last):
  File "client.py", line 1, in connect
    connect()
OSError: no route

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "job_head.py", line 3, in submit_job
    raise ClientError from error

aiohttp.ClientError: refused
by 10.0.0.7
"""


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ((500, "Job a already exists"), "remote_refused", "answers 500 to `GET /x`: Job a"),
        ((500, TRACEBACK), "remote_refused", "`GET /x`: aiohttp.ClientError: refused by"),
        ((503, "soon"), "unavailable", "not available now: it answers 503"),
        ((302, ""), "not_ray_dashboard", "sends requests on to `https://login.example`"),
        ((200, "<html>"), "not_ray_dashboard", "gives no JSON: <html>"),
        ((404, "no"), "not_ray_dashboard", "`/x` gives 404"),
    ],
)
def test_answers_that_are_none(answer: tuple[int, str], code: str, message: str) -> None:
    with (
        answering({"/x": answer}) as answers,
        closing(answers.dashboard()) as ray,
        pytest.raises(BackendError, match=message) as raised,
    ):
        ray.get("/x")
    assert raised.value.code == code
    assert raised.value.hint


def test_refusals_have_their_status() -> None:
    with answering({"/x": (413, "large")}) as answers, closing(answers.dashboard()) as ray:
        with pytest.raises(Refused) as raised:
            ray.put("/x", b"")
        with pytest.raises(PlaceMissing):
            ray.read("/y")
    assert raised.value.status == 413


def test_an_answer_that_is_lost() -> None:
    with answering({"/x": "end", "/y": VERSION}) as answers, closing(answers.dashboard()) as ray:
        with pytest.raises(OutcomeUnknown):
            ray.post("/x", {})
        with pytest.raises(BackendError) as raised:
            ray.get("/x")
        assert raised.value.code == "host_unreachable"
        assert ray.get("/y") == VERSION


@pytest.mark.parametrize("lost", ["end", (503, "soon"), (429, "slowly"), (502, "proxy")], ids=str)
def test_a_question_whose_first_answer_is_lost_is_asked_once_more(lost: object) -> None:
    left = [lost]
    with (
        answering({"/x": lambda: left.pop() if left else VERSION}) as answers,
        closing(answers.dashboard()) as ray,
    ):
        assert ray.get("/x") == VERSION
        left.append(lost)
        with pytest.raises(BackendError):
            ray.post("/x", {})  # this may change something
    assert [request for request, _ in answers.requests] == ["GET /x", "GET /x", "POST /x"]


def test_a_connection_that_the_other_side_ended_is_made_again() -> None:
    with answering({"/y": VERSION, "/x": "end"}) as answers, closing(answers.dashboard()) as ray:
        ray.get("/y")
        answers.by_path["/y"] = "end"
        with pytest.raises(BackendError):
            ray.get("/y")
        answers.by_path["/y"] = VERSION
        assert ray.post("/y", {}) == VERSION


def test_only_the_time_of_requests_counts() -> None:
    with answering({"/y": VERSION}) as answers:
        ray = Dashboard(DashboardAddress(url=answers.url), Credentials(), TimeBudget(0.5))
        with closing(ray), budgeted():
            ray.get("/y")
            time.sleep(0.6)  # a plan reads files meanwhile
            assert ray.get("/y") == VERSION


def test_a_connection_is_open_and_no_time_is_left() -> None:
    with answering({"/y": VERSION}) as answers:
        ray = Dashboard(DashboardAddress(url=answers.url), Credentials(), TimeBudget(0.5))
        with closing(ray), budgeted():
            ray.get("/y")
            answers.delay = 0.6
            with pytest.raises(BackendError, match="no answer came in"):
                ray.get("/y")
            with pytest.raises(BackendError, match="no answer came in"):
                ray.get("/y")


def test_what_does_not_count_may_take_longer() -> None:
    with answering({"/y": VERSION}) as answers:
        answers.delay = 0.2
        ray = Dashboard(DashboardAddress(url=answers.url), Credentials(), TimeBudget(0.1))
        with closing(ray), budgeted():
            with budgeted(on=False):
                assert ray.get("/y") == VERSION
            with pytest.raises(BackendError, match=r"no answer came in 0\.1 s"):
                ray.get("/y")


def test_a_dashboard_that_was_silent_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard_connection, "_SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ray = Dashboard(DashboardAddress(url=url), Credentials())
        for _ in range(2):
            with pytest.raises(BackendError, match=r"no answer came in 0\.2 s") as raised:
                ray.get("/api/version")
            assert raised.value.code == "host_unreachable"
        with pytest.raises(BackendError) as raised:
            ray.post("/api/jobs/", {})
        assert not isinstance(raised.value, OutcomeUnknown)  # it was not sent
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # one connection was made
            silent.accept()
        ray.close()


def test_a_name_that_no_host_can_have() -> None:
    ray = Dashboard(DashboardAddress(url=f"http://{'a' * 64}.example"), Credentials())
    with pytest.raises(BackendError, match="no host can have this name") as raised:
        ray.get("/api/version")
    assert raised.value.code == "host_unreachable"


@pytest.mark.parametrize(
    ("source", "url", "named"),
    [
        ("RAY_ADDRESS", "http://127.0.0.1:1", "`RAY_ADDRESS`"),
        (None, "http://127.0.0.1:1", "`http://127.0.0.1:1`, where the run was submitted,"),
        (None, DEFAULT_ADDRESS, f"`{DEFAULT_ADDRESS}`, the default,"),
    ],
)
def test_a_hint_says_where_the_address_is_from(source: str | None, url: str, named: str) -> None:
    address = DashboardAddress(url=url, source=source)
    with (
        closing(Dashboard(address, Credentials())) as ray,
        pytest.raises(BackendError) as raised,
    ):
        ray.part("/", {}, "a", str)
    assert f"see that {named} is the URL" in raised.value.hint


def test_a_host_that_is_not_there_or_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ray = Dashboard(DashboardAddress(url=url), Credentials(), TimeBudget(0.2))
        with budgeted(), pytest.raises(BackendError, match=r"no answer came in 0\.2 s") as raised:
            ray.get("/api/version")
        assert raised.value.code == "host_unreachable"
        assert raised.value.retryable
        ray.close()
    ray = Dashboard(DashboardAddress(url=url), Credentials())
    with pytest.raises(BackendError, match="connection refused") as raised:
        ray.post("/api/jobs/", {})  # never arrived: no unknown outcome
    assert not isinstance(raised.value, OutcomeUnknown)
    assert "`ray[default]`" in raised.value.hint
