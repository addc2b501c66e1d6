"""Launches of a job keep their environments, also those that no declared job has any more."""

import os
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.content.store import content_store
from tests.backends.local.jobs.conftest import Shop, ended
from tests.support import until


def stored(folder: Path) -> int:
    """How many environments are in the store."""
    return len(list((folder / "data/sgpu/store/environments/manifests").glob("*.json")))


@pytest.mark.parametrize("waits", [True, False])
def test_gc_keeps_the_environment_of_an_active_launch_until_it_ends(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr(content_store, "YOUNG_SECONDS", 0.0)
    create(tmp_path / "venv", symlinks=True)
    go = tmp_path / "go"
    wait = f"import os, time\nwhile not os.path.exists({os.fspath(go)!r}): time.sleep(0.02)\n"
    # A task before the run waits, or a rank of the run does.
    (shop.folder / "steps/prepare.py").write_text(wait if waits else "")
    (shop.folder / "train.py").write_text(
        f"import sys\ndef main():\n    {'pass' if waits else 'wait()'}\n    return sys.prefix\n"
        "def wait():\n" + "".join(f"    {line}\n" for line in wait.splitlines())
    )
    used = f"env: {{snapshot: true, python: {tmp_path}/venv/bin/python}}, "
    shop.replace("grace: 500ms", f"{used}grace: 500ms")
    shop.done("apply", "-y")
    started = shop.jobs.start("nightly")
    until(lambda: shop.jobs.look_again(started).launch.state.value == "running")
    shop.replace(used, "")
    shop.done("apply", "-y")

    shop.done("gc")
    assert stored(tmp_path) == 1
    go.touch()
    tasks = {one.name: one for one in ended(shop, started).tasks}
    assert "store/environments/trees" in str(tasks["train"].results[0]["value"])
    shop.done("gc")
    assert stored(tmp_path) == 0
