"""The contract of backends: all of it for this machine, a part in each run of the tests for the
others, whose nodes take longer to start. Of that of states a part for a workspace and for a bucket,
where each entry takes some requests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.places.folder import MARKER
from sgpu_decl.storing.stores import DATABRICKS, FOLDER, OBJECT, SharedPlace
from tests.sampling import strided
from tests.shared_places import VOLUME

pytest.register_assert_rewrite("sgpu_decl.testing.contracts.backend_contract")

QUICK = {
    "TestFolder": (
        "test_a_rank_that_left_no_traceback_is_shown_with_its_last_lines",
        "test_a_launch_with_a_token_that_was_launched_starts_nothing",
        "test_a_replaced_attempt_has_ended_before_the_new_one_starts",
        "test_lines_of_all_restarts_are_shown_or_those_of_one",
        "test_what_has_ended_is_found_under_its_new_name_and_after_a_destroy",
    ),
    "TestSsh": (
        "test_a_launch_with_a_token_that_was_launched_starts_nothing",
        "test_a_launch_whose_answer_is_lost_is_found_again",
        "test_a_replaced_attempt_has_ended_before_the_new_one_starts",
        "test_what_was_never_launched_is_left_out_and_harmless",
        "test_runs_start_in_their_order",
        "test_a_secret_reaches_ranks_and_nothing_else",
        "test_an_attempt_that_resumes_finds_the_newest_output_that_was_left",
        "test_what_has_ended_is_found_under_its_new_name_and_after_a_destroy",
    ),
    "TestSlurm": (
        "test_a_launch_whose_answer_is_lost_is_found_again",
        "test_cancelling_twice_is_cancelling_once",
        "test_results_come_in_the_order_of_ranks",
        "test_a_secret_reaches_ranks_and_nothing_else",
        "test_what_was_never_launched_is_left_out_and_harmless",
        "test_what_has_ended_is_found_under_its_new_name_and_after_a_destroy",
    ),
    "TestSlurmLogin": (
        "test_a_launch_whose_answer_is_lost_is_found_again",
        "test_a_secret_reaches_ranks_and_nothing_else",
    ),
    "TestDatabricks": (
        "test_a_launch_with_a_token_that_was_launched_starts_nothing",
        "test_a_launch_whose_answer_is_lost_is_found_again",
        "test_what_was_never_launched_is_left_out_and_harmless",
        "test_results_come_in_the_order_of_ranks",
        "test_what_is_active_is_neither_freed_nor_moved",
        "test_what_has_ended_is_found_under_its_new_name_and_after_a_destroy",
        "test_nothing_is_moved_onto_what_is_there",
        "test_an_attempt_whose_folder_was_deleted_is_whole_elsewhere_or_freed",
        "test_what_an_apply_has_staged_survives_gc_of_another_project",
    ),
    "TestRay": ("test_a_failed_rank_is_the_first_cause",),
    "TestRayWithoutStorage": ("test_results_come_in_the_order_of_ranks",),
}

QUICK_OVER_HTTP = (
    "test_an_entry_is_read_as_it_was_appended",
    "test_an_entry_is_added_only_after_the_one_that_its_author_has_read",
    "test_a_gap_is_never_read_over",
    "test_a_holder_whose_lock_was_broken_launches_nothing",
    "test_proposals_are_read_newest_first_as_they_were_written",
    "test_a_store_is_found_again_by_its_url",
)
EXPENSIVE_OVER_HTTP = (
    "test_a_number_is_given_once",
    "test_the_newest_checkpoint_is_found_and_one_that_is_there_stays",
    "test_targets_are_those_with_entries",
    "test_of_two_writers_that_race_each_gets_its_numbers_and_no_entry_is_lost",
    "test_the_lock_of_a_dead_process_elsewhere_is_taken_over_when_its_lease_is_over",
    "test_a_paused_holder_whose_lease_was_taken_over_cannot_write",
    "test_a_holder_adds_nothing_to_a_store_that_lost_entries",
    "test_what_the_store_did_not_take_is_settled_by_the_next_machine",
    "test_a_compacted_state_is_the_same_on_every_machine",
    "test_a_state_can_be_compacted_again_and_shows_what_is_left",
    "test_a_number_whose_entry_was_deleted_is_not_given_again",
    "test_whose_state_it_is_is_the_same_on_another_machine_and_in_a_checkpoint",
    "test_old_proposals_do_not_count",
    "test_old_proposals_are_deleted_when_that_is_asked_for",
)
"""Of the tests that neither list names, a sample runs over HTTP, and all in `make soak`."""

_STATES = ("test_journal.py", "test_proposals.py", "test_state_store.py")


@pytest.fixture
def folder_place(tmp_path: Path) -> SharedPlace:
    """A folder for a state that machines share."""
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / MARKER).touch()
    return SharedPlace(kind=FOLDER, address=str(folder), project="p")


@pytest.fixture
def group_place(folder_place: SharedPlace) -> Iterator[SharedPlace]:
    """The same, shared by a group, while files of this process are its user's alone."""
    Path(folder_place.address).chmod(0o2770)
    before = os.umask(0o077)
    yield folder_place
    os.umask(before)


def assert_of_the_group(file: Path, *, below: SharedPlace) -> None:
    """The group may write a file, and in all folders above it."""
    root = Path(below.address)
    assert file.stat().st_mode & 0o777 == 0o660
    for folder in [one for one in file.parents if one.is_relative_to(root) and one != root]:
        assert folder.stat().st_mode & 0o070 == 0o070
        assert folder.stat().st_gid == root.stat().st_gid


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    over_http = [item for item in items if _is_over_http(item)]
    slow = [item for item in over_http if _name(item) not in QUICK_OVER_HTTP]
    others = [item for item in slow if _name(item) not in EXPENSIVE_OVER_HTTP]
    left_out = {*others}.difference(strided(others, 5))
    for item in slow:
        item.add_marker(pytest.mark.expensive)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])
    for item in items:
        if not isinstance(item, pytest.Function) or item.cls is None:
            continue
        quick = QUICK.get(item.cls.__name__)
        if quick is not None and item.originalname not in quick:
            item.add_marker(pytest.mark.expensive)


def _name(item: pytest.Item) -> str:
    """The name of a test without its parameters."""
    return str(getattr(item, "originalname", item.name))


def _is_over_http(item: pytest.Item) -> bool:
    """Whether it is a test of a state that is reached over HTTP."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.path.name not in _STATES:
        return False
    return not {DATABRICKS, VOLUME, OBJECT}.isdisjoint(map(str, callspec.params.values()))
