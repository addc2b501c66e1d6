"""What a text after `sgpu env` stands for: attempts and staged environments."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.content.store.content_store import default_root
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.environments.package_lists.packages import this_interpreter
from sgpu_decl.errors import NotFound
from sgpu_decl.model.environment import EnvironmentKind, Package
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.step_progress import Quiet
from tests.support import FUNCTION_RUN


def test_an_attempt_stands_for_what_its_ranks_found(
    folder: Path, apply: Callable[..., Plan]
) -> None:
    (folder / "run.yaml").write_text(FUNCTION_RUN)
    (folder / "train.py").write_text("def main():\n    pass\n")
    apply()
    found = Session.open(Location(project=folder)).environment("a#1")
    assert (found.name, found.kind) == ("a#1", EnvironmentKind.ATTEMPT)
    assert found.packages == this_interpreter().packages
    with pytest.raises(NotFound):
        Session.open(Location(project=folder)).environment("a#2")


def staged(folder: Path, version: str) -> str:
    """Put an environment of one package into the store; its digest."""
    made = folder / version
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    (site / "tiny.py").write_text(f"version = {version!r}\n")
    metadata = site / f"tiny-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
    (metadata / "RECORD").write_text(f"tiny.py,,\n{metadata.name}/METADATA,,\n")
    store = EnvironmentStore(default_root() / "environments")
    captured, findings = store.capture(str(made / "bin" / "python"), Quiet())
    assert captured is not None, findings
    return captured.manifest.digest


@pytest.mark.usefixtures("folder")
def test_a_staged_environment_is_named_by_the_start_of_its_digest(tmp_path: Path) -> None:
    digests = [staged(tmp_path, version) for version in ("1.0", "2.0")]
    hexes = [digest.removeprefix("sha256:") for digest in digests]
    for name in (digests[1], hexes[1], hexes[1][:12], digests[1][:19]):
        found = Session.open(Location()).environment(name)
        assert (found.kind, found.digest) == (EnvironmentKind.SNAPSHOT, digests[1])
        assert found.packages == (Package("tiny", "2.0"),)
    unknown = "0" * 12
    with pytest.raises(NotFound) as caught:
        Session.open(Location()).environment(unknown)
    assert caught.value.message == f"no staged environment begins with `{unknown}`"


@pytest.mark.usefixtures("folder")
def test_before_anything_was_staged_no_digest_is_known() -> None:
    with pytest.raises(NotFound):
        Session.open(Location()).environment("sha256:abcdef")
