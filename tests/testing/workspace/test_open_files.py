"""A server of many users keeps the files of a few open."""

import os
from pathlib import Path

from sgpu_decl.testing.workspace.tenant import _AWAKE, Tenants


def test_users_who_came_long_ago_have_no_open_files_and_all_that_they_wrote(tmp_path: Path) -> None:
    tenants = Tenants(tmp_path, {})
    held = tenants.of_token("0")
    held.table("t").put("a", {"n": 0})
    for number in range(1, 3 * _AWAKE):
        tenants.of_token(str(number)).table("t").put("a", {"n": number})
    assert len(_open_below(tmp_path)) <= 3 * (_AWAKE + 1)
    assert [held.table("t").get("a"), tenants.of_token("1").table("t").get("a")] == [
        {"n": 0}, {"n": 1},
    ]  # fmt: skip
    with held.transaction():  # one that is in use stays open
        for number in range(100, 100 + 2 * _AWAKE):
            tenants.of_token(str(number))
        held.table("t").put("a", {"n": 7})
    assert held.table("t").get("a") == {"n": 7}
    tenants.close()
    assert _open_below(tmp_path) == []


def _open_below(folder: Path) -> list[str]:
    links = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            links.append(os.readlink(entry.path))
        except FileNotFoundError:  # that of the listing itself
            continue
    return [link for link in links if link.startswith(str(folder))]
