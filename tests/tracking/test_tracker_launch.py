import subprocess
import sys

from sgpu_decl.tracking.tracking_request import tracker_spec


def test_a_run_that_turns_tracking_off_has_no_tracker() -> None:
    assert tracker_spec(enabled=False) is None


def test_finding_mlflow_does_not_import_it() -> None:
    code = (
        "import sys\n"
        "from sgpu_decl.tracking.tracking_request import tracker_spec\n"
        "tracker_spec(enabled=True)\n"
        "print('mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_mlflow_a_run_still_runs() -> None:
    code = (
        "import sys\n"
        "sys.path[:] = [entry for entry in sys.path if 'site-packages' not in entry]\n"
        "from sgpu_decl.tracking.tracking_request import tracker_spec\n"
        "print(tracker_spec(enabled=True))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=__file__.partition("/tests/")[0],
    )
    assert done.stdout == "None\n"
