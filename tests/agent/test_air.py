"""What a rank does inside `_air.py`: entry kinds, values, streams, hooks."""

import json
import os
import pickle
import reprlib
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sgpu_decl
import sgpu_decl.agent
from sgpu_decl.rendering.spec import Entry, RetrySpec, TrackerSpec

Make = Callable[..., Any]


def function(name: str = "main", args: Any = None) -> Entry:
    return Entry(kind="file_function", path="main.py", function=name, args=args)


def value(attempt: Any) -> Any:
    status = attempt.launch().wait()
    assert status["state"] == "succeeded", attempt.log(0, "stderr")
    return json.loads(attempt.text("ranks/0/output.json"))


def test_a_script_sees_itself_as_main(make_attempt: Make) -> None:
    source = (
        "import json, os, sys\n"
        "class Item: pass\n"
        "import pickle; pickle.dumps(Item())\n"
        "if __name__ == '__main__':\n"
        "    print(json.dumps([sys.argv, sys.path[0], os.getcwd(), __file__]))\n"
    )
    entry = Entry(kind="script", path="main.py", args=("--lr", 0.5))
    attempt = make_attempt(source, entry=entry, world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded"
    code = str(attempt.folder / "code")
    path = code + "/main.py"
    assert json.loads(attempt.log()) == [["main.py", "--lr", "0.5"], code, code, path]


def test_a_function_that_executes_itself_is_called_again(make_attempt: Make) -> None:
    source = (
        "import os, sys\n"
        "def main():\n"
        "    if os.environ.setdefault('AGAIN', 'no') == 'yes': return sys.argv\n"
        "    os.environ['AGAIN'] = 'yes'\n"
        "    os.execv(sys.executable, sys.orig_argv)\n"
    )
    attempt = make_attempt(source, entry=function(), world_size=1)
    assert value(attempt) == [str(attempt.folder / "_air.py")]


def test_a_script_can_spawn_workers(make_attempt: Make) -> None:
    source = (
        "import multiprocessing\n"
        "def double(n): return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n"
    )
    attempt = make_attempt(source, world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded", attempt.log(0, "stderr")
    assert attempt.log() == "[2, 4]\n"


def test_functions_of_modules_async_ones_and_lists_of_arguments(make_attempt: Make) -> None:
    source = "async def main(a, b=0): return [a, b]"
    assert value(make_attempt(source, entry=function(args=(1, 2)))) == [1, 2]
    entry = Entry(kind="module_function", module="main", function="main", args={"a": 5})
    assert value(make_attempt(source, entry=entry)) == [5, 0]


@pytest.mark.parametrize(
    "text", ["(1, 2)", "{1: 2}", "float('nan')", "object", "{'a': {1}}", "1 << 20_000"]
)
def test_what_json_would_change_is_pickled(make_attempt: Make, text: str) -> None:
    attempt = make_attempt(f"def main(): return {text}", entry=function(), world_size=1)
    kept = value(attempt)
    expected = eval(text)
    again = pickle.loads((attempt.folder / "ranks/0" / kept["pickle"]).read_bytes())
    assert again == expected or again != again
    shown = "<int>" if isinstance(expected, int) else reprlib.repr(expected)
    assert kept["repr"] == shown


def test_the_text_of_a_large_value_is_cut_while_it_is_made(make_attempt: Make) -> None:
    source = (
        "class Long:\n"
        "    def __repr__(self): raise MemoryError('never')\n"
        "def main(): return (*range(1000), Long(), 'é' * 1000)\n"
    )
    kept = value(make_attempt(source, entry=function(), world_size=1))
    assert kept["repr"] == "(0, 1, 2, 3, 4, 5, ...)"


def test_what_an_earlier_restart_returned_is_no_result(make_attempt: Make) -> None:
    source = (
        "import os\n"
        "def main():\n"
        "    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1': os._exit(0)\n"
        "    if os.environ['RANK'] == '0': return 'old'\n"
        "    while not os.path.exists(os.environ['SGPU_RUN_DIR'] + '/ranks/0/output.json'): pass\n"
        "    raise ValueError('again')\n"
    )
    retry = RetrySpec(max=1, on=("error",), backoff=0.01)
    attempt = make_attempt(source, entry=function(), retry=retry)
    assert attempt.launch().wait()["state"] == "succeeded"
    assert not list(attempt.folder.glob("ranks/*/output.json"))


@pytest.mark.parametrize("text", ["None", "[1, 2.5, 'é', None, True]", "{'a': {'b': []}}", "-0.0"])
def test_what_json_keeps_is_json(make_attempt: Make, text: str) -> None:
    attempt = make_attempt(f"def main(): return {text}", entry=function(), world_size=1)
    assert value(attempt) == eval(text)


@pytest.mark.parametrize(("call", "code"), [("sys.exit()", 0), ("sys.exit('no data')", 1)])
def test_an_exit_code_is_honoured(make_attempt: Make, call: str, code: int) -> None:
    attempt = make_attempt(f"import sys\n{call}", world_size=1)
    assert attempt.launch().wait()["exit_code"] == code
    assert attempt.log(0, "stderr") == ("no data\n" if code else "")


def test_an_import_error_inside_the_users_code_is_an_exception(make_attempt: Make) -> None:
    attempt = make_attempt("import gone_away\ndef main(): pass", entry=function(), world_size=1)
    status = attempt.launch().wait()
    assert (status["class"], status["first_cause"]["summary"]) == (
        "exception",
        "ModuleNotFoundError: No module named 'gone_away'",
    )


def test_colours_are_left_out_of_what_is_recorded_of_an_exception(make_attempt: Make) -> None:
    source = "raise ValueError('\\x1b[36mray::task()\\x1b[39m failed \\x1b[1;31mhere\\x1b[m')"
    attempt = make_attempt(source, entry=Entry(kind="script", path="main.py"), world_size=1)
    cause = attempt.launch().wait()["first_cause"]
    assert cause["summary"] == "ValueError: ray::task() failed here"
    assert "\x1b" not in cause["traceback"]
    assert "\x1b[36mray::task()" in attempt.log(0, "stderr")


def test_an_index_beside_the_log_tells_when_bytes_were_written(make_attempt: Make) -> None:
    attempt = make_attempt("print('one')\nprint('two')\n" * 100, world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded"
    assert attempt.log() == "one\ntwo\n" * 100
    index = (attempt.folder / "ranks/0/0/stdout.idx").read_bytes()
    entries = list(struct.iter_unpack("<QQ", index))
    assert entries[0][1] == 0
    assert entries == sorted(entries)


def test_the_index_of_a_stream_begins_with_its_first_byte(make_attempt: Make) -> None:
    """A time noted before anything was written would put the first line of stderr before what
    stdout was given earlier."""
    attempt = make_attempt("print('one')", world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded"
    assert (attempt.folder / "ranks/0/0/stderr.idx").read_bytes() == b""
    assert len((attempt.folder / "ranks/0/0/stdout.idx").read_bytes()) == 16


def test_a_traceback_was_written_after_what_was_printed_before_it(make_attempt: Make) -> None:
    source = "import time\nprint('one')\ntime.sleep(0.02)\nprint('two')\nraise ValueError"
    attempt = make_attempt(source, world_size=1)
    assert attempt.launch().wait()["state"] == "failed"
    printed, shown = (
        list(struct.iter_unpack("<QQ", (attempt.folder / f"ranks/0/0/{name}.idx").read_bytes()))
        for name in ("stdout", "stderr")
    )
    assert [offset for _, offset in printed] == [0, 4, 8]
    assert [offset for _, offset in shown] == [0]
    assert printed[1][0] < shown[0][0]


PARTIAL = """
import os, sys
print("printed", end="")
sys.stdout.write(", written")
print(", and", 1, None, end="", file=sys.stderr)
sys.stdout.buffer.write(b", in bytes")
os._exit(0)
"""


def test_text_without_a_newline_is_there_at_once(make_attempt: Make) -> None:
    attempt = make_attempt(PARTIAL, world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded"
    assert attempt.log() == "printed, written, in bytes"
    assert attempt.log(0, "stderr") == ", and 1 None"


COUNTED = """
import os
written = os.write
calls = []
os.write = lambda descriptor, data: calls.append(bytes(data)) or written(descriptor, data)
class Shown:
    def __str__(self):
        print("first")
        return "second"
print("one line")
print("two", 2, sep="-", end="!\\n")
print(Shown(), flush=True)
print()
for wrong in ({"sep": 1}, {"end": True}):
    try:
        print("x", **wrong)
    except TypeError as error:
        print(error)
import pickle
assert pickle.loads(pickle.dumps(print)) is print
os.write = written
print([text for text in calls if b"\\n" in text])
"""


def test_a_whole_line_is_one_write_and_print_is_as_ever(make_attempt: Make) -> None:
    attempt = make_attempt(COUNTED, world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded", attempt.log(0, "stderr")
    *text, calls = attempt.log().splitlines()
    plain = subprocess.run(
        [sys.executable, "-u", "-c", COUNTED], capture_output=True, text=True, check=True
    )
    assert text == plain.stdout.splitlines()[:-1]
    assert b"one line\n" in eval(calls)
    assert b"two-2!\n" in eval(calls)


def test_an_encoding_that_the_user_chose_is_kept(make_attempt: Make) -> None:
    attempt = make_attempt("print('é')", world_size=1, env={"PYTHONIOENCODING": "latin-1"})
    assert attempt.launch().wait()["state"] == "succeeded"
    assert (attempt.folder / "ranks/0/0/stdout.log").read_bytes() == b"\xe9\n"


def test_a_full_disk_drops_and_counts_output(make_attempt: Make) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this machine has no /dev/full")
    attempt = make_attempt("print('x' * 1000)", world_size=1)
    (attempt.folder / "ranks/0/0").mkdir(parents=True)
    (attempt.folder / "ranks/0/0/stdout.log").symlink_to("/dev/full")
    assert attempt.launch().wait()["state"] == "succeeded"
    assert "1001 bytes of output were dropped" in attempt.log(0, "stderr")


TRACKER = (
    "import json, os, sys\n"
    "folder = os.environ['SGPU_RUN_DIR']\n"
    "open(folder + '/mlflow.tmp', 'w').write(json.dumps(%r))\n"
    "os.rename(folder + '/mlflow.tmp', folder + '/mlflow.json')\n"
    "sys.stdin.read()\n"
)


ENV = {"MLFLOW_TRACKING_URI": "http://a", "MLFLOW_RUN_ID": "abc", "MLFLOW_EXPERIMENT_ID": "1"}


def test_importing_mlflow_waits_for_the_run_id(make_attempt: Make) -> None:
    tracker = TrackerSpec(argv=(sys.executable, "-c", TRACKER % {"env": ENV, "experiment": "a"}))
    source = "def main():\n    import mlflow\n    return mlflow.seen"
    attempt = make_attempt(source, entry=function(), tracker=tracker)
    fake = "import os\nseen = os.environ['MLFLOW_RUN_ID']\n"
    (attempt.folder / "code" / "mlflow.py").write_text(fake)
    assert value(attempt) == "abc"


def test_credentials_of_the_tracker_are_masked_in_errors(make_attempt: Make) -> None:
    tracker = TrackerSpec(
        argv=(sys.executable, "-c", TRACKER % {"env": ENV, "experiment": "a"}),
        secrets=("MLFLOW_TRACKING_TOKEN",),
    )
    source = "import os\ndef main():\n    raise ValueError(os.environ['MLFLOW_TRACKING_TOKEN'])"
    environment = {"MLFLOW_TRACKING_TOKEN": "correct-horse"}
    attempt = make_attempt(source, entry=function(), tracker=tracker, env=environment)
    assert attempt.launch().wait()["first_cause"]["summary"] == "ValueError: ***"
    assert "correct-horse" not in attempt.text("ranks/0/0/error.json")


def test_a_tracker_that_failed_costs_one_line(make_attempt: Make) -> None:
    tracker = TrackerSpec(argv=(sys.executable, "-c", TRACKER % {"error": "no server"}))
    source = "def main():\n    import os, mlflow\n    return 'MLFLOW_RUN_ID' in os.environ"
    attempt = make_attempt(source, entry=function(), tracker=tracker)
    (attempt.folder / "code" / "mlflow.py").write_text("")
    assert value(attempt) is False
    logs = attempt.log(0, "stderr") + attempt.log(1, "stderr")
    assert logs.count("no server") == 1


def test_the_agent_runs_from_a_zip_and_from_its_folder(make_attempt: Make, tmp_path: Path) -> None:
    folder = Path(sgpu_decl.agent.__file__).parent
    archive = tmp_path / "agent.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.rglob("*.py"):
            file.write(path, path.relative_to(folder))
    for agent in (archive, folder):
        attempt = make_attempt("print('hello')", world_size=1)
        started = subprocess.run(
            [sys.executable, "-I", "-S", str(agent), str(attempt.folder)],
            input=b"{}",
            capture_output=True,
            cwd="/",
            check=True,
        )
        assert (started.stdout, started.stderr) == (b"ok", b"")
        assert attempt.wait()["state"] == "succeeded"
        assert attempt.log() == "hello\n"


def test_attempts_share_what_is_the_same_in_all_of_them(make_attempt: Make) -> None:
    first, second = make_attempt("print('one')"), make_attempt("print('two')")
    archives = [attempt.folder / "rank.zip" for attempt in (first, second)]
    assert archives[0].samefile(archives[1])
    assert second.launch().wait()["state"] == "succeeded"


def test_a_rank_has_the_users_modules_and_the_sgpu_of_its_environment(make_attempt: Make) -> None:
    source = (
        "import json, sys\n"
        "import rank, streams, sgpu_decl.runtime\n"
        "ours = [path for path in sys.path if 'rank.zip' in path]\n"
        "print(json.dumps([rank.name, streams.name, sgpu_decl.__file__, ours]))\n"
    )
    attempt = make_attempt(source, world_size=1)
    for name in ("rank", "streams"):
        (attempt.folder / f"code/{name}.py").write_text(f"name = {name!r}")
    assert attempt.launch().wait()["state"] == "succeeded", attempt.log(0, "stderr")
    assert json.loads(attempt.log()) == ["rank", "streams", sgpu_decl.__file__, []]


def test_what_python_says_of_a_script_every_rank_says(make_attempt: Make) -> None:
    attempt = make_attempt("x = 1\nprint(x is 1)\n")
    assert attempt.launch().wait()["state"] == "succeeded"
    for rank in (0, 1):
        assert 'main.py:2: SyntaxWarning: "is" with a literal' in attempt.log(rank, "stderr")


def test_a_script_that_was_changed_in_its_copy_runs_as_it_is(make_attempt: Make) -> None:
    attempt = make_attempt("print('as staged')\n", world_size=1)
    script = attempt.folder / "code/main.py"
    script.write_text("print('as it is now')\n")
    os.utime(script, (1, 1))
    assert attempt.launch().wait()["state"] == "succeeded"
    assert attempt.log() == "as it is now\n"
