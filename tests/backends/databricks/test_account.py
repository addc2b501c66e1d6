"""Which workspace is meant, from YAML, environment and profiles."""

from pathlib import Path

import pytest

from sgpu_decl.backends.databricks.api.account import Account, login_of
from sgpu_decl.errors import BackendError

PROFILES = """\
[DEFAULT]
host = https://One.example.com/
token = dapi1

[two]
host = two.example.com
auth_type = external-browser

[again]
host = https://two.example.com
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "cfg").write_text(PROFILES)
    return {"DATABRICKS_CONFIG_FILE": str(tmp_path / "cfg")}


def test_the_default_profile_counts_where_nobody_says_anything(environ: dict[str, str]) -> None:
    login = login_of(Account(), environ)

    assert (login.profile, login.host, login.interactive) == (
        "DEFAULT",
        "https://one.example.com",
        False,
    )


def test_a_host_is_enough_where_one_profile_is_for_it(environ: dict[str, str]) -> None:
    assert login_of(Account(None, "https://one.example.com"), environ).profile == "DEFAULT"


def test_a_named_profile_may_need_a_browser(environ: dict[str, str]) -> None:
    assert login_of(Account("two"), environ).interactive


@pytest.mark.parametrize(
    ("account", "more", "code", "words"),
    [
        (Account("two", "https://one.example.com"), {}, "host_differs", "the profile `two` says"),
        (Account("two"), {"DATABRICKS_HOST": "https://x.co"}, "host_differs", "`DATABRICKS_HOST`"),
        (Account("nobody"), {}, "no_profile", "has no profile `nobody`"),
        (Account(None, "https://two.example.com"), {}, "no_profile", "`two`, `again`"),
        (Account(None, "https://three.example.com"), {}, "no_profile", "three.example.com"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused(
    environ: dict[str, str], account: Account, more: dict[str, str], code: str, words: str
) -> None:
    with pytest.raises(BackendError) as caught:
        login_of(account, {**environ, **more})

    assert caught.value.code == code
    assert words in caught.value.message


def test_nothing_at_all_is_refused_with_the_way_in(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        login_of(Account(), {"DATABRICKS_CONFIG_FILE": str(tmp_path / "none")})

    assert caught.value.code == "no_workspace"
    assert "databricks auth login" in str(caught.value.hint)
