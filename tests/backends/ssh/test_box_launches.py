"""Which hosts are logged in to."""

from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.box.box_launches import BoxLaunches
from sgpu_decl.backends.box.box_place import names_host
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.ssh.options import SshOptions
from sgpu_decl.backends.ssh.ssh_backend import places_in
from sgpu_decl.errors import BackendError
from sgpu_decl.testing.contracts.backend_bench import BackendBench


def test_a_host_that_only_a_shared_state_names_is_not_logged_in_to(
    bench: BackendBench, tmp_path: Path
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    assert bench.ran()["state"] == "succeeded"
    record = bench.record("hello")
    unused: dict[str, Any] = dict.fromkeys(("store", "environments", "pythons"))
    hosts = LaunchHosts(tmp_path / "hosts.json")

    def host(*named: str, shared: bool = True) -> str:
        context = BackendContext(
            project=tmp_path, state_dir=tmp_path, **unused, shared_state=lambda: shared,
            backend_blocks=lambda _: tuple(SshOptions(kind="ssh", host=one) for one in named),
        )  # fmt: skip
        return BoxLaunches(context, Boxes(), hosts, places_in).box(record).host

    for named in ((), ("another",)):
        with pytest.raises(BackendError, match="only the record of the run names") as refused:
            host(*named)
        assert refused.value.code == "address_not_named"
    assert host(shared=False) == "box"
    assert host("another", "box") == "box"
    hosts.add("box")
    assert host() == "box"


@pytest.mark.parametrize(
    "name", ["", "-oProxyCommand=id", "a b", "a;id", "$(id)", "`id`", "a\nb", "a'b", 'a"b', "a|b"]
)
def test_what_a_shell_would_take_for_more_is_no_host(bench: BackendBench, name: str) -> None:
    assert not names_host(name)
    bench.declare("value", args={"gate": "."}, backend={"kind": "ssh", "host": name})

    assert "error[bad_host]" in bench("validate").err


@pytest.mark.parametrize("name", ["gpu1", "ann@gpu1.lab.org", "10.0.0.1", "ssh://ann@gpu1:2222"])
def test_what_ssh_takes_is_a_host(name: str) -> None:
    assert names_host(name)


@pytest.mark.parametrize(
    ("field", "way_out"),
    [
        ({"port": 22}, "write `Port` in `~/.ssh/config`"),
        ({"password": "x"}, "use a key"),
        ({"storage": "~/50%"}, "which MLflow misreads"),
    ],
)
def test_a_field_that_is_none_has_a_way_out(
    bench: BackendBench, field: dict[str, Any], way_out: str
) -> None:
    bench.declare("value", args={"gate": "."}, backend={"kind": "ssh", "host": "box", **field})

    refused = bench("validate")

    assert (refused.code, way_out in refused.err) == (1, True), refused
