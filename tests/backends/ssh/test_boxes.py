"""A box over a real sshd: the login, the look for a Python, and what it says of itself."""

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sgpu_decl.agent.system.locks import create_held
from sgpu_decl.backends.archives import agent_sources_digest
from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.boxes import PATIENCE, Box
from sgpu_decl.backends.box.ssh_process import SshConnectionLost, SshProcess
from sgpu_decl.errors import BackendError
from tests.ssh_server import SshServer, keygen
from tests.support import until


def test_a_box_says_what_it_is_and_keeps_the_agent(server: SshServer, box: Box) -> None:
    assert box.hello["root"] == str(server.home / "sgpu")
    assert abs(box.facts["time"] - time.time()) < 60
    assert box.facts["free"] > 0
    (agent,) = (server.home / "sgpu/agents").iterdir()
    assert agent.name.partition(".")[0] == agent_sources_digest()
    assert len(list(agent.rglob("*.pyc"))) == len(list(agent.rglob("*.py")))


def test_one_connection_is_kept_for_all_commands(server: SshServer, box: Box) -> None:
    box.ask("facts")
    box.close()
    other = Box(BoxPlace("box", "~/sgpu"))  # as the next command
    other.ask("facts")
    other.close()

    assert server.logins == 1


def test_a_lost_connection_is_made_again(server: SshServer, box: Box) -> None:
    box.ask("facts")
    server.cut()

    assert box.ask("facts")["free"] > 0
    assert server.logins == 2


def test_a_box_that_is_away_is_named_and_may_come_back(server: SshServer, box: Box) -> None:
    box.ask("facts")
    server.stop()

    with pytest.raises(BackendError, match=r"cannot reach `box` by ssh: .*refused") as refused:
        box.ask("facts")
    assert (refused.value.code, refused.value.retryable) == ("host_unreachable", True)

    server.start()
    assert box.ask("facts")["free"] > 0


def test_a_login_that_prints_is_understood(server: SshServer, box: Box) -> None:
    shell = server.home / ".bashrc"  # bash reads it where sshd starts it
    shell.write_text("echo 'welcome {\"v\": 1}'; echo on stderr >&2\n")

    assert box.ask("facts")["free"] > 0

    box.close()
    for text, words in [
        (
            "echo maintenance tonight; exit",
            "shell there answered; it printed `maintenance tonight`\n",
        ),
        ("echo no terminal >&2; exit 1", "by ssh: no terminal\n"),
    ]:
        shell.write_text(text)
        with pytest.raises(BackendError, match=words):
            box.ask("facts")


def test_settings_of_the_user_for_sessions_of_their_own_do_not_hold(
    server: SshServer, box: Box
) -> None:
    config = server.folder / "ssh_config"
    own = f"RemoteCommand top\nRequestTTY force\nLogLevel QUIET\nControlPath {server.folder}/own\n"
    config.write_text(f"{own}ControlMaster yes\n{config.read_text()}")
    assert box.ask("facts")["free"] > 0
    assert not (server.folder / "own").exists()

    box.close()
    config.write_text(f"{config.read_text()}\nHost *\n  Prot 22\n")
    with pytest.raises(BackendError, match=r"line \d+: Bad configuration option: prot; "):
        box.ask("facts")


@pytest.mark.parametrize("known", [None, "another"])
def test_a_host_that_is_not_the_known_one_is_refused(
    server: SshServer, box: Box, known: str | None
) -> None:
    if known is None:
        (server.folder / "known_hosts").unlink()
    else:
        keygen(server.folder / known)
        server.know_host(known)

    with pytest.raises(BackendError, match="Host key verification failed") as refused:
        box.ask("facts")

    assert "`ssh box echo ok`" in (refused.value.hint or "")
    assert not (server.home / "sgpu").exists()


def test_a_key_that_is_not_allowed_is_refused(server: SshServer, box: Box) -> None:
    for name in ("key", "key.pub"):
        (server.folder / name).unlink()
    keygen(server.folder / "key")
    (server.folder / "key.pub").write_text("")

    with pytest.raises(BackendError, match="Permission denied"):
        box.ask("facts")


def test_a_host_that_nobody_knows_is_refused(server: SshServer) -> None:
    with pytest.raises(BackendError, match=r"cannot reach `no-such-host\.invalid`"):
        Box(BoxPlace("no-such-host.invalid", "~/sgpu")).ask("facts")


def test_a_python_is_named_or_missing(server: SshServer) -> None:
    named = Box(BoxPlace("box", "~/sgpu", sys.executable))
    assert os.path.samefile(named.hello["python"], sys.executable)
    named.close()

    with pytest.raises(BackendError, match=r"needs a Python 3\.10 or newer") as refused:
        Box(BoxPlace("box", "~/sgpu", "/no/such/python")).ask("facts")
    assert refused.value.code == "no_python_there"


def test_a_storage_that_cannot_be_made_is_refused(server: SshServer) -> None:
    (server.home / "file").touch()

    with pytest.raises(BackendError, match="`~/file/sgpu` on `box` cannot be used") as refused:
        Box(BoxPlace("box", "~/file/sgpu")).ask("facts")
    assert refused.value.code == "storage_unusable"


def test_an_agent_that_was_deleted_is_sent_again(server: SshServer, box: Box) -> None:
    box.ask("facts")
    box.close()
    shutil.rmtree(server.home / "sgpu")

    assert box.ask("facts")["free"] > 0


def test_a_request_that_nobody_knows_is_refused(box: Box) -> None:
    with pytest.raises(BackendError) as refused:
        box.ask("dance")
    assert refused.value.code == "unknown_request"


def test_a_program_that_waits_there_ends_with_its_connection(server: SshServer) -> None:
    root = server.home / "sgpu"
    process = SshProcess("box", None, str(root))
    (root / "environments").mkdir()
    lock = create_held(str(root / "environments/lock"))
    request = {"do": "make_tree", "environment": "0" * 64}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(process.call, request, (), 0, PATIENCE)
        until(lambda: _others_with(root / "environments/lock"))

        server.cut()

        with pytest.raises(SshConnectionLost):
            answer.result()
    process.close()
    until(lambda: not _others_with(root / "environments/lock"))
    os.close(lock)


def _others_with(file: Path) -> list[str]:
    """The processes beside this one that have a file open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == str(file) and link.parts[2] != str(os.getpid()):
                found.append(link.parts[2])
    return found
