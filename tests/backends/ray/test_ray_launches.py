"""Where a launch on a Ray cluster lies."""

import json
from pathlib import Path

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.remote.folder_files import FolderFiles
from sgpu_decl.backends.remote.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging_area import StagingArea
from tests.backends.launches import launching_of


@pytest.mark.parametrize(("storage", "key"), [(None, "http://then:8265"), ("/shared", "now")])
def test_a_launch_without_storage_lies_where_its_job_is(
    tmp_path: Path, storage: str | None, key: str
) -> None:
    """`RAY_ADDRESS` may say something else by now."""

    def area(name: str) -> StagingArea:
        return StagingArea(RemoteLayout(""), FolderFiles(tmp_path), key={"name": name})

    backend = {"kind": "ray", "storage": storage}
    config = {"name": "test", "gpus": 1, "type": "CPU", "command": ["true"], "backend": backend}
    record = launching_of(spec=json.dumps(config)).record
    launches = RayLaunches(AttemptLayout(tmp_path / "state"), lambda _: area("now"), area)
    assert launches.area(record).key == {"name": "now"}

    marker = {"token": record.token, "address": "http://then:8265", "session": "one"}
    launches.memory.remember(record, marker=marker)

    assert launches.area(record).key == {"name": key}
