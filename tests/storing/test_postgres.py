"""A state in PostgreSQL: rights, and what a server may refuse."""

import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

from sgpu_decl.backends.databricks.api.workspace_state import database_token
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.owner import Presence
from sgpu_decl.storing.journal.port import StoreDown
from sgpu_decl.storing.journal.store import JournalStore
from sgpu_decl.storing.journal.writer import JournalWriter
from sgpu_decl.storing.postgres.journal import PROPOSALS, TABLES, PostgresJournal
from sgpu_decl.storing.postgres.server import Server, ServerConnection
from sgpu_decl.storing.state_store import StateStore
from sgpu_decl.storing.stores import (
    DEFAULT_SCHEMA,
    POSTGRES,
    SharedPlace,
    shared_proposals,
    shared_store,
)
from sgpu_decl.testing.workspace import WorkspaceServer
from tests.docs.pages import ROOT
from tests.postgres_server import binaries, new_server
from tests.support import PATIENCE, refusing, some, until
from tests.workspace_login import log_in

GRANTS = ROOT / "examples" / "gitops" / "grants.sql"


class Database:
    def __init__(self, url: str) -> None:
        self.url = url
        self.schema = f"test_{uuid.uuid4().hex[:12]}"
        self.role = f"role_{uuid.uuid4().hex[:12]}"

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def store(self, folder: Path, *, url: str = "", password: str | None = None) -> StateStore:
        place = SharedPlace(
            kind=POSTGRES,
            address=url or self.url,
            project="p",
            schema=self.schema,
            password=password,
        )
        return shared_store(place, folder / "default")

    def as_role(self, *rights: str) -> str:
        self.run(
            f"CREATE ROLE {self.role} LOGIN",
            f"GRANT USAGE ON SCHEMA {self.schema} TO {self.role}",
            *(
                f"GRANT {right} ON ALL TABLES IN SCHEMA {self.schema} TO {self.role}"
                for right in rights
            ),
        )
        return self.url.replace("owner@", f"{self.role}@")


@pytest.fixture
def database(postgres: str) -> Iterator[Database]:
    made = Database(postgres)
    yield made
    made.run(f"DROP SCHEMA IF EXISTS {made.schema} CASCADE", f"DROP ROLE IF EXISTS {made.role}")


@pytest.fixture
def applied(database: Database, tmp_path: Path) -> Database:
    """A database with a state."""
    store = database.store(tmp_path / "owner")
    with store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("p")
    store.close()
    return database


def test_a_role_that_may_select_reads_and_cannot_lock(applied: Database, tmp_path: Path) -> None:
    store = applied.store(tmp_path / "planner", url=applied.as_role("SELECT"))
    assert some(store.read()).serial == 1
    with (
        pytest.raises(SgpuError, match="permission denied") as caught,
        store.lock("apply", lineage="lin"),
    ):
        pass
    assert caught.value.code == "state_unreachable"
    assert f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {applied.schema}" in str(
        caught.value.hint
    )
    store.close()


def test_a_role_that_may_select_and_insert_applies_and_changes_nothing_that_is_there(
    applied: Database, tmp_path: Path
) -> None:
    url = applied.as_role("SELECT, INSERT")
    store = applied.store(tmp_path / "applier", url=url)
    with store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("another")
        assert writer.applied("p")
    store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            f"DELETE FROM {applied.schema}.entries",
            f"UPDATE {applied.schema}.entries SET entry = ''",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_who_may_delete_compacts_and_nobody_else(applied: Database, tmp_path: Path) -> None:
    role = applied.as_role("SELECT, INSERT")
    applier = applied.store(tmp_path / "applier", url=role)
    owner = applied.store(tmp_path / "owner")
    assert isinstance(applier, JournalStore)
    assert isinstance(owner, JournalStore)
    before = owner.read_all()
    with refusing("compact_refused", match="may not delete") as caught:
        applier.compact(0)
    assert f"GRANT DELETE ON ALL TABLES IN SCHEMA {applied.schema}" in str(caught.value.hint)
    assert applier.read_all() == before
    assert owner.compact(0).entries > 0
    assert applier.read_all() == before
    with applier.lock("apply", lineage="lin") as writer:
        assert writer.applied("p")
    for store in (applier, owner):
        store.close()


def test_the_page_has_the_sql_that_makes_the_tables() -> None:
    sql = GRANTS.read_text()
    statements = [" ".join(one.split()) for one in sql.split(";")]
    made = [one.format(schema=DEFAULT_SCHEMA) for one in (*TABLES, PROPOSALS)]
    assert statements[: len(made)] == made
    assert f"```sql\n{sql}```" in (ROOT / "docs" / "state.md").read_text()


def test_the_grants_are_enough_for_two_roles_and_no_more(
    database: Database, tmp_path: Path
) -> None:
    planner, applier = f"{database.schema}_plan", f"{database.schema}_apply"
    place = SharedPlace(kind=POSTGRES, address=database.url, project="p", schema=database.schema)
    sql = GRANTS.read_text().replace("sgpu", database.schema)

    def store_of(role: str) -> StateStore:
        return database.store(tmp_path / role, url=database.url.replace("owner@", f"{role}@"))

    with psycopg.connect(database.url, autocommit=True) as owner:
        for role in (planner, applier):
            owner.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(role)))
        try:
            owner.execute(sql.encode())
            owner.execute(sql.encode())
            with (
                closing(store_of(applier)) as applying,
                applying.lock("apply", lineage="lin") as writer,
            ):
                writer.plan_applied("p")
            with closing(store_of(planner)) as planning:
                assert some(planning.read()).serial == 1
                with (
                    pytest.raises(SgpuError, match="permission denied"),
                    planning.lock("apply", lineage="lin"),
                ):
                    pass
            named = database.url.replace("owner@", f"{planner}@")
            with closing(shared_proposals(replace(place, address=named), "t")) as proposing:
                proposing.propose("a" * 32, b"x")
                assert [item.content for item in proposing.proposals()] == [b"x"]
            with (
                psycopg.connect(named, autocommit=True) as connection,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                connection.execute(f"DELETE FROM {database.schema}.proposals".encode())
        finally:
            owner.execute(f"DROP SCHEMA {database.schema} CASCADE".encode())
            for role in (planner, applier):
                owner.execute(SQL("DROP ROLE {}").format(Identifier(role)))


def test_a_database_that_is_not_there_is_named(database: Database, tmp_path: Path) -> None:
    store = database.store(tmp_path, url=database.url.replace("/postgres?", "/nothing?"))
    with pytest.raises(StoreDown, match='"nothing" does not exist'):
        store.read()


def test_a_server_that_is_not_there_is_named(database: Database, tmp_path: Path) -> None:
    store = database.store(tmp_path, url="postgresql://me@127.0.0.1:1/sgpu?sslmode=disable")
    with pytest.raises(StoreDown, match=r"127\.0\.0\.1:1/sgpu.*cannot be reached"):
        store.read()


def test_a_password_that_is_not_set_is_named(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = database.store(tmp_path, password="env:SGPU_TEST_PASSWORD")
    monkeypatch.delenv("SGPU_TEST_PASSWORD", raising=False)
    with pytest.raises(SgpuError, match="SGPU_TEST_PASSWORD"):
        store.read()
    monkeypatch.setenv("SGPU_TEST_PASSWORD", "hunter2")
    assert store.read() is None
    assert "hunter2" not in store.url
    store.close()


def test_a_machine_without_the_library_is_told_how_to_install_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = database.store(tmp_path)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with refusing("sdk_missing", match="psycopg") as caught:
        store.read()
    assert "pip install 'psycopg[binary]>=3.2,<4'`" in str(caught.value.hint)
    assert store.presence("lin") is Presence.UNKNOWN


def test_a_table_of_another_program_is_refused(database: Database, tmp_path: Path) -> None:
    database.run(
        f"CREATE SCHEMA {database.schema}", f"CREATE TABLE {database.schema}.entries (id int)"
    )
    store = database.store(tmp_path)
    with pytest.raises(SgpuError, match="cannot be used") as caught:
        store.read()
    assert not isinstance(caught.value, StoreDown)
    store.close()


def test_a_connection_that_was_cut_is_opened_again(applied: Database, tmp_path: Path) -> None:
    store = applied.store(tmp_path / "here")

    def cut() -> None:
        assert isinstance(store, JournalStore)
        journal = store._journal
        assert isinstance(journal, PostgresJournal)
        connection = some(journal._server._open)
        applied.run(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 10000)")

    with store.lock("apply", lineage="lin") as writer:
        cut()
        writer.plan_applied("after the cut")
    for read in (store.read, store.read_all, store.holder):
        cut()
        read()
    cut()
    with store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("after another cut")
    assert some(store.read()).serial == 3
    store.close()


@pytest.mark.parametrize("nth", range(len(TABLES)))
def test_tables_that_another_machine_makes_at_the_same_moment_are_used(
    database: Database, nth: int
) -> None:
    made = [statement.format(schema=database.schema) for statement in TABLES]
    database.run(*made[:nth])
    server = ServerConnection(Server(url=database.url, schema=database.schema))
    journal = PostgresJournal(server, project="p", target="default")
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
    with psycopg.connect(database.url) as other, ThreadPoolExecutor(1) as threads:
        other.execute(made[nth].encode())
        added = threads.submit(journal.put_checkpoint, 1, b"content")
        with psycopg.connect(database.url, autocommit=True) as looking:
            until(lambda: added.done() or looking.execute(waiting).fetchone() != (0,))
        other.commit()
        assert added.result()
    assert journal.append(1, "entry") is not None
    assert journal.checkpoint() == (1, b"content")
    journal.close()


@pytest.mark.expensive
def test_a_statement_that_waits_for_long_ends_and_later_all_goes_on(
    applied: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = applied.store(tmp_path / "here")
    with store.lock("apply", lineage="lin") as writer:
        assert isinstance(writer, JournalWriter)
        with monkeypatch.context() as patched, psycopg.connect(applied.url) as other:
            module = "sgpu_decl.storing.postgres.server"
            patched.setattr(f"{module}._STATEMENT_SECONDS", 0.5)
            patched.setattr(f"{module}._SLOW_SECONDS", 0.2)
            writer._patience = 0.0
            other.execute(f"LOCK TABLE {applied.schema}.entries".encode())
            began = time.monotonic()
            with pytest.raises(StoreDown, match=r"did not answer within 0\.5 s"):
                writer.plan_applied("q")
            for _ in range(50):
                with pytest.raises(StoreDown, match="did not answer a moment ago"):
                    writer.plan_applied("q")
            assert time.monotonic() - began < 5
        writer._patience = PATIENCE
        writer.plan_applied("q")  # the server may have carried out the first one meanwhile
        assert writer.applied("q")
    with closing(applied.store(tmp_path / "there")) as there:
        assert there.read() == store.read()
    store.close()


@pytest.mark.expensive
def test_a_server_that_never_answers_lets_many_calls_wait_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "sgpu_decl.storing.postgres.server"
    monkeypatch.setattr(f"{module}._CONNECT_SECONDS", 2)
    monkeypatch.setattr(f"{module}._SLOW_SECONDS", 1.0)
    monkeypatch.setattr(f"{module}._SILENT_SECONDS", PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://owner@127.0.0.1:{silent.getsockname()[1]}/sgpu"
        server = ServerConnection(Server(url=url, schema="sgpu"))
        journal = PostgresJournal(server, project="p", target="default")
        with pytest.raises(StoreDown):
            journal.after(0)
        began = time.monotonic()
        for number in range(50):
            with pytest.raises(StoreDown, match="did not answer a moment ago"):
                journal.append(number + 1, "entry")
        assert time.monotonic() - began < 2  # that of one more attempt to connect


def test_threads_share_a_connection_that_is_cut_again_and_again(applied: Database) -> None:
    server = ServerConnection(Server(url=applied.url, schema=applied.schema))

    def read(_: int) -> int:
        found = some(server.execute("SELECT count(*) FROM {schema}.entries", ()).fetchone())
        return int(found[0])

    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = pool.map(read, range(200))
        for _ in range(20):
            server.close()
        assert len(set(answers)) == 1
    server.close()


def test_a_server_that_takes_no_more_writes_is_asked_again(
    applied: Database, tmp_path: Path
) -> None:
    store = applied.store(tmp_path / "here")
    assert isinstance(store, JournalStore)
    journal = store._journal
    assert isinstance(journal, PostgresJournal)
    assert journal.after(0)
    assert journal._server._open is not None
    journal._server._open.execute("SET default_transaction_read_only = on")
    with pytest.raises(StoreDown, match="read-only"):
        journal.append(len(journal.after(0)) + 1, "x")
    with store.lock("apply", lineage="lin") as writer:  # over another connection
        writer.plan_applied("later")
    store.close()


@pytest.mark.parametrize(
    "setting",
    [
        "datestyle=SQL,DMY",
        "default_transaction_isolation=serializable",
        "search_path=nowhere",
        "timezone=Asia/Kathmandu",
    ],
)
def test_settings_of_a_database_change_nothing(
    applied: Database, tmp_path: Path, setting: str
) -> None:
    url = f"{applied.url}&options={quote(f'-c {setting}')}"
    store = applied.store(tmp_path / "here", url=url)
    with store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("q")
        writer.check_held()
    assert some(store.read()).serial == 2
    store.close()


class PlainServer:
    """A server without TLS, which asks whoever goes on all the same for a password. `0.0.0.0` leads
    to it, and is no address of this machine by name."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.received = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._listening, self._listening.accept()[0] as client:
            client.recv(8)  # may we speak TLS?
            client.sendall(b"N")
            while came := client.recv(4096):
                self.received += came
                client.sendall(b"R\0\0\0\x08\0\0\0\x03")  # the password, in clear

    def joined(self) -> bytes:
        """What was sent after the refusal of TLS."""
        self._thread.join(PATIENCE)
        return self.received


_BY_SERVICE = "postgresql:///sgpu?service=state"


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        (_BY_SERVICE, {}),
        ("postgresql:///sgpu", {"PGSERVICE": "state"}),
        ("postgresql:///sgpu", {"PGHOST": "0.0.0.0"}),
        ("postgresql:///sgpu", {"PGHOST": "localhost", "PGHOSTADDR": "0.0.0.0"}),
        (f"{_BY_SERVICE}&sslmode=prefer", {}),
        (_BY_SERVICE, {"PGSSLMODE": "allow"}),
        ("postgresql://0.0.0.0/sgpu", {}),
    ],
)
def test_a_server_on_another_machine_without_tls_gets_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, environ: dict[str, str]
) -> None:
    server = PlainServer()
    services = tmp_path / "services.conf"
    services.write_text(f"[state]\nhost=0.0.0.0\nport={server.port}\nuser=me\n")
    settings = {"PGPASSWORD": "hunter2", "PGUSER": "me", "PGPORT": str(server.port)}
    for name, value in (settings | {"PGSERVICEFILE": str(services)} | environ).items():
        monkeypatch.setenv(name, value)
    place = SharedPlace(kind=POSTGRES, address=url, project="p")
    with (
        closing(shared_store(place, tmp_path / "default")) as store,
        pytest.raises(StoreDown, match="SSL"),
    ):
        store.read()
    assert server.joined() == b""


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content


def test_a_server_that_is_too_old_is_refused(tmp_path: Path) -> None:
    """What its version is, a server says once it has let somebody in."""
    version = _message(b"S", b"server_version\x0012.22\x00")
    welcome = _message(b"R", bytes(4)) + version + _message(b"Z", b"I")

    def serve() -> None:
        with listening, listening.accept()[0] as client:
            client.recv(4096)
            client.sendall(welcome)
            client.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        url = f"postgresql://me@127.0.0.1:{port}/sgpu?sslmode=disable&gssencmode=disable"
        place = SharedPlace(kind=POSTGRES, address=url, project="p")
        with (
            closing(shared_store(place, tmp_path / "default")) as store,
            pytest.raises(SgpuError, match="PostgreSQL 12: a state needs 13") as caught,
        ):
            store.read()
        thread.join(PATIENCE)
    assert caught.value.code == "state_unreachable"
    assert "state.url" in str(caught.value.hint)


@pytest.mark.expensive
def test_a_plan_that_finds_nothing_new_takes_one_connection_and_two_statements(
    tmp_path: Path,
) -> None:
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL")
    settings = ("log_statement=all", "log_connections=on", "log_min_duration_statement=-1")
    with new_server(programs, *settings) as server:
        place = SharedPlace(kind=POSTGRES, address=server.url, project="p")
        with (
            closing(shared_store(place, tmp_path / "default")) as store,
            store.lock("apply", lineage="lin") as writer,
        ):
            writer.plan_applied("p")
        before = server.log()
        with closing(shared_store(place, tmp_path / "default")) as store:
            assert store.read() is not None
            store.history(Address.run("a"))
        said = server.log().removeprefix(before)
    assert said.count("connection authorized") == 1, said
    assert said.count("execute <unnamed>") + said.count("statement: ") <= 2, said
    assert 'FROM "sgpu".entries' in said


def test_a_token_of_a_workspace_is_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator keeps no database: this is `database-token` with the password of a role."""
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL")
    principal = {"client": "secret"}
    with (
        WorkspaceServer(tmp_path / "workspace", clients=principal) as workspace,
        new_server(programs) as server,
    ):
        log_in(workspace, monkeypatch, tmp_path)
        place = SharedPlace(
            kind=POSTGRES,
            address=server.url.replace("owner@", "principal@"),
            project="p",
            password="databricks",
        )

        def read() -> None:
            with closing(shared_store(place, tmp_path / "default")) as store:
                assert store.read() is None

        with pytest.raises(SgpuError, match="has no OAuth token"):  # the token of a person
            read()
        monkeypatch.delenv("DATABRICKS_TOKEN")
        monkeypatch.setenv("DATABRICKS_CLIENT_ID", "client")
        monkeypatch.setenv("DATABRICKS_CLIENT_SECRET", "secret")
        token = database_token()
        with psycopg.connect(server.url, autocommit=True) as owner:
            owner.execute(SQL("CREATE ROLE principal LOGIN PASSWORD {}").format(Literal("other")))
            owner.execute("SELECT pg_reload_conf()")
            rules = server.data / "pg_hba.conf"
            rules.write_text("local all owner trust\nlocal all all scram-sha-256\n")
            owner.execute("SELECT pg_reload_conf()")

            def refused() -> bool:
                """The server takes up its rules some time later."""
                try:
                    psycopg.connect(place.address, password="none").close()
                except psycopg.OperationalError:
                    return True
                return False

            until(refused)
            with pytest.raises(StoreDown, match="password authentication failed"):
                read()
            owner.execute(SQL("ALTER ROLE principal PASSWORD {}").format(Literal(token)))
        read()
        assert token not in shared_store(place, tmp_path / "default").url
