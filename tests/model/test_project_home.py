"""Repositories by the URLs of their remotes."""

import pytest

from sgpu_decl.model.project_home import ProjectHome, repository_of


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/Team/vision.git",
        "https://github.com/Team/vision/",
        "https://user:token@GitHub.com/Team/vision.git",
        "ssh://git@github.com:22/Team/vision.git",
        "git@github.com:Team/vision.git",
        "github.com:/Team/vision",
    ],
)
def test_a_repository_has_one_name_in_all_its_urls(url: str) -> None:
    assert repository_of(url) == "github.com/Team/vision"


@pytest.mark.parametrize(
    "url",
    ["/srv/git/vision.git", "../vision", "file:///srv/git/vision.git", "./a:b", "https://", "x:",
     "https://[/vision", ""],
)  # fmt: skip
def test_a_path_of_one_machine_names_no_repository(url: str) -> None:
    assert repository_of(url) is None


def home(repository: str, folder: str = ".") -> ProjectHome:
    return ProjectHome(repository=repository, folder=folder)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("github.com/Team/vision", "github.com/team/vision"),
        ("github.com/team/vision", "github-of-work/team/vision"),
        ("ssh.dev.azure.com/v3/team/ml/vision", "dev.azure.com/team/ml/_git/vision"),
    ],
)
def test_one_repository_may_be_reached_in_two_ways(one: str, other: str) -> None:
    assert home(one).is_same(home(other))
    assert not home(one, "a").is_same(home(other))
    assert not home(one).is_same(home(f"{other}-2"))


def test_it_is_shown_with_its_folder() -> None:
    assert str(home("github.com/team/vision")) == "github.com/team/vision"
    assert str(home("github.com/team/vision", "a/b")) == "github.com/team/vision, folder a/b"
