"""The `state` block: where machines share a state."""

import pytest

from sgpu_decl.config.project_files import Included, IncludedFile
from sgpu_decl.config.state_reader import DeclaredState
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.target import Mode
from tests.reading import clean, read_store

POSTGRES = "postgresql://sgpu@db.example.com/sgpu"


def read(
    text: str, *, target: str | None = None, project: str = "project: {name: p}\n"
) -> tuple[DeclaredState | None, tuple[Diagnostic, ...]]:
    return read_store(f"{project}{text}", target=target)


def declared(text: str, target: str | None = None) -> DeclaredState:
    return clean(read(text, target=target))


def test_a_project_without_the_block_names_no_store() -> None:
    assert read("runs: {}\n") == (None, ())
    assert read("state:\n") == (None, ())


def test_a_folder_and_a_server_are_named() -> None:
    folder = declared("state: {kind: folder, path: /mnt/team/state}\n")
    assert (folder.block.kind, folder.block.address, folder.project) == (
        "folder", "/mnt/team/state", "p",
    )  # fmt: skip
    server = declared(f"state: {{kind: postgres, url: {POSTGRES}, schema: ml, password: env:PW}}\n")
    assert (server.block.address, server.block.schema, server.block.password) == (
        POSTGRES, "ml", "env:PW",
    )  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/Workspace/Shared/sgpu-state", "/Workspace/Users/a@b.c/x/", "/Volumes/main/ml/state"]
)
def test_a_folder_of_a_workspace_is_named_with_its_login(path: str) -> None:
    block = declared(f"state: {{kind: databricks, path: {path}, profile: team}}\n").block
    assert (block.kind, block.address) == ("databricks", path.rstrip("/"))
    assert (block.profile, block.host) == ("team", None)
    named = declared(f"state: {{kind: databricks, path: {path}, host: DBC-1.example.com}}\n")
    assert named.block.host == "https://dbc-1.example.com"


@pytest.mark.parametrize(
    ("block", "address", "more"),
    [
        ("url: s3://team-state/sgpu/", "s3://team-state/sgpu", (None, None, None)),
        ("url: s3://team.state, region: eu-central-1", "s3://team.state",
         (None, "eu-central-1", None)),
        ("url: s3://b-1/a/b, endpoint: 'https://minio.example.com:9000/'", "s3://b-1/a/b",
         ("https://minio.example.com:9000", None, None)),
        ("url: s3://b-1, endpoint: 'http://127.0.0.1:9000'", "s3://b-1",
         ("http://127.0.0.1:9000", None, None)),
        ("url: s3://b-1, endpoint: 'http://[::1]:9000'", "s3://b-1",
         ("http://[::1]:9000", None, None)),
        ("url: s3://b-1, endpoint: 'http://minio:9000', allow_http: true", "s3://b-1",
         ("http://minio:9000", None, None)),
        ("url: gs://team-state/sgpu", "gs://team-state/sgpu", (None, None, None)),
        ("url: az://states/sgpu, account: team", "az://states/sgpu", (None, None, "team")),
    ],
)  # fmt: skip
def test_a_folder_of_a_bucket_is_named_with_its_server(
    block: str, address: str, more: tuple[str | None, ...]
) -> None:
    found = declared(f"state: {{kind: object, {block}}}\n").block
    assert (found.kind, found.address) == ("object", address)
    assert (found.endpoint, found.region, found.account) == more


def test_a_variable_of_an_included_file_is_known() -> None:
    text = "project: {name: p}\ninclude: [v.yml]\nstate: {kind: folder, path: '/mnt/${var.team}'}\n"
    fragment = IncludedFile(path="v.yml", file="v.yml", content=b"variables: {team: {default: a}}")
    found, findings = read_store(text, read_included=lambda _: Included(files=(fragment,)))
    assert findings == ()
    assert found is not None
    assert found.block.path == "/mnt/a"


def test_a_variable_file_gives_values() -> None:
    text = (
        "project: {name: p}\nvariables: {team: a}\n"
        "state: {kind: folder, path: '/mnt/${var.team}'}\n"
    )
    found = clean(read_store(text, variable_files=[(b"team: b\n", "values.yml")]))
    assert found.block.path == "/mnt/b"


def test_a_target_has_a_store_and_a_mode_of_its_own() -> None:
    text = (
        "state: {kind: folder, path: /mnt/a}\n"
        "targets: {dev: {mode: development, state: {path: /mnt/b}}}\n"
    )
    base, dev = declared(text), declared(text, "dev")
    assert (base.block.path, base.mode) == ("/mnt/a", Mode.PRODUCTION)
    assert (dev.block.path, dev.mode) == ("/mnt/b", Mode.DEVELOPMENT)


def test_a_variable_may_name_the_store() -> None:
    text = 'variables: {place: /mnt/c}\nstate: {kind: folder, path: "${var.place}/x"}\n'
    assert declared(text).block.path == "/mnt/c/x"


@pytest.mark.parametrize(
    ("block", "code", "says"),
    [
        ("{kind: s3, path: /x}", "unknown_value", "kind"),
        ("{kind: folder}", "missing_key", "needs `path`"),
        ("{kind: postgres}", "missing_key", "needs `url`"),
        ("{path: /x}", "missing_key", "state.kind"),
        ("{kind: folder, path: here}", "bad_path", "absolute"),
        ("{kind: folder, path: /x, url: postgresql://h/d}", "contradiction", "has no `url`"),
        ("{kind: folder, pth: /x}", "unknown_key", "pth"),
        ("{kind: postgres, url: mysql://h/d}", "bad_state_url", "PostgreSQL"),
        ('{kind: postgres, url: "postgresql://[::1/d"}', "bad_state_url", "URL"),
        ("{kind: postgres, url: postgresql://me:hunter2hunter2@h/d}", "password_in_url", "holds"),
        (
            '{kind: postgres, url: "postgresql://h/d?password=hunter2hunter2"}',
            "password_in_url",
            "h",
        ),
        ('{kind: postgres, url: "postgresql://h/d?sslmode=prefer"}', "state_unencrypted", "TLS"),
        ("{kind: postgres, url: postgresql://h/d, schema: A-b}", "bad_name", "schema"),
        ("{kind: postgres, url: postgresql://h/d, password: hunter2}", "bad_secret", "variable"),
        ("{kind: databricks}", "missing_key", "needs `path`"),
        ("{kind: databricks, path: Shared/x}", "bad_path", "absolute"),
        ("{kind: databricks, path: /mnt/team/x}", "bad_path", "a folder of the workspace"),
        ("{kind: databricks, path: /Workspace}", "bad_path", "a folder of the workspace"),
        ("{kind: databricks, path: /Volumes/main/ml}", "bad_path", "of a volume"),
        ("{kind: databricks, path: /Workspace/a/../b}", "bad_path", "`/Workspace/a/../b`"),
        ("{kind: databricks, path: /Workspace/a/b, host: 'a b'}", "bad_host", "workspace"),
        ("{kind: databricks, path: /Workspace/a/b, schema: s}", "contradiction", "no `schema`"),
        ("{kind: folder, path: /x, profile: team}", "contradiction", "has no `profile`"),
        ("{kind: object}", "missing_key", "needs `url`"),
        ("{kind: objekt, url: s3://b-1}", "unknown_value", "kind"),
        ("{kind: object, url: s3://b-1, endpont: 'https://h'}", "unknown_key", "endpont"),
        ("{kind: object, url: s3://}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: 's3:///sgpu'}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: ftp://b-1/sgpu}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: b-1/sgpu}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: s3://b-1//x}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: s3://b-1/../x}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: s3://b-1/a b}", "bad_state_url", "no folder of a bucket"),
        ("{kind: object, url: 's3://AKIA:hunter2hunter2@b-1'}", "password_in_url", "a login"),
        ("{kind: object, url: 'az://c-1/x?sig=hunter2', account: t}", "password_in_url", "login"),
        (
            "{kind: object, url: s3://b-1, endpoint: 'https://a:hunter2hunter2@h'}",
            "password_in_url",
            "state.endpoint",
        ),
        ("{kind: object, url: s3://b-1, endpoint: minio}", "bad_state_url", "no URL of a server"),
        ("{kind: object, url: s3://b-1, endpoint: 'http://'}", "bad_state_url", "URL"),
        ("{kind: object, url: s3://b-1, endpoint: 'http://minio'}", "state_unencrypted", "TLS"),
        (
            "{kind: object, url: s3://b-1, allow_http: false, endpoint: 'http://minio'}",
            "state_unencrypted",
            "TLS",
        ),
        ("{kind: object, url: s3://b-1, region: 'EU 1'}", "bad_name", "region"),
        ("{kind: object, url: az://c-1, account: A_B}", "bad_name", "storage account"),
        ("{kind: object, url: az://c-1}", "missing_key", "needs `account`"),
        ("{kind: object, url: gs://b-1, region: eu-central-1}", "contradiction", "no `region`"),
        ("{kind: object, url: s3://b-1, account: team}", "contradiction", "no `account`"),
        ("{kind: object, url: s3://b-1, path: /x}", "contradiction", "has no `path`"),
        ("{kind: postgres, url: postgresql://h/d, region: eu-1}", "contradiction", "no `region`"),
        ("/mnt/state", "wrong_type", "mapping"),
    ],
)
def test_a_wrong_block_is_named_with_its_place(block: str, code: str, says: str) -> None:
    found, findings = read(f"state: {block}\n")
    assert found is None
    assert code in {one.code for one in findings}
    first = next(one for one in findings if one.code == code)
    assert says in first.summary
    assert first.place is not None
    assert first.place.line == 2
    assert first.hint or "one of" in first.summary
    assert not any("hunter2" in f"{one.summary} {one.hint}" for one in findings)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "%2Frun%2Fpostgresql", ""])
def test_tls_may_be_left_out_on_this_machine(host: str) -> None:
    declared(f'state: {{kind: postgres, url: "postgresql://{host}/d?sslmode=disable"}}\n')


def test_a_shared_state_needs_the_name_of_the_project() -> None:
    found, findings = read("state: {kind: folder, path: /x}\n", project="runs: {}\n")
    assert found is None
    assert [one.code for one in findings] == ["missing_key"]
