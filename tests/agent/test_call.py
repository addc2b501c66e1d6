"""What a rank makes of a call: what travelled is loaded, called, and what comes of it is kept."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sgpu_decl.rendering.spec import RetrySpec, Warm
from tests.support import require

Make = Callable[..., Any]


def value(attempt: Any, rank: int = 0) -> Any:
    """What a rank returned, from the text or the pickle that it left."""
    status = attempt.launch().wait()
    assert status["state"] == "succeeded", (status, attempt.log(rank, "stderr"))
    kept = json.loads(attempt.text(f"ranks/{rank}/output.json"))
    if isinstance(kept, dict) and "pickle" in kept:
        path = attempt.folder / "ranks" / str(rank) / kept["pickle"]
        return pickle.loads(path.read_bytes())
    return kept


def refused(attempt: Any) -> str:
    """Why a call could not even be loaded."""
    status = attempt.launch().wait()
    assert (status["state"], status["class"]) == ("failed", "launch_failed_user"), status
    return str(status["first_cause"]["summary"])


# ── loading and calling ──────────────────────────────────────────────────────────────────────────


def test_a_function_is_called_with_what_it_was_given(make_call: Make) -> None:
    offset = 10
    attempt = make_call(lambda a, b: [a + offset, b], 1, {"x": None}, world_size=1)
    assert value(attempt) == [11, {"x": None}]


def test_a_coroutine_function_is_awaited(make_call: Make) -> None:
    async def train(a: int) -> int:
        return a + 1

    assert value(make_call(train, 1, world_size=1)) == 2


def test_rank_and_world_size_are_filled_in(make_call: Make) -> None:
    def train(name: str, *, rank: int, world_size: int) -> list[object]:
        return [name, rank, world_size]

    attempt = make_call(train, "a", call={"fill": ("rank", "world_size")})
    assert value(attempt) == ["a", 0, 2]
    assert json.loads(attempt.text("ranks/1/output.json")) == ["a", 1, 2]


def test_arrays_come_out_of_band_and_can_be_written_to(make_call: Make) -> None:
    np = pytest.importorskip("numpy")
    captured, given, empty = np.arange(100_000), np.ones((300, 200)), np.zeros(0)
    frozen = np.arange(3)
    frozen.flags.writeable = False

    def train(array: Any, none: Any, constant: Any) -> Any:
        captured[0] = array[0, 0] = 7
        flags = captured.flags.writeable, captured.flags.aligned, constant.flags.writeable
        return flags, int(captured.sum()), float(array.sum()), none.shape

    attempt = make_call(train, given, empty, frozen)
    assert (attempt.folder / "func.bin").stat().st_size == captured.nbytes
    total = int(np.arange(100_000).sum()) + 7
    assert value(attempt) == ((True, True, False), total, 60_006.0, (0,))
    assert (attempt.folder / "func.bin").read_bytes() == captured.tobytes()


def test_buffers_without_a_byte_need_no_file_of_bytes(make_call: Make) -> None:
    np = pytest.importorskip("numpy")
    assert value(make_call(lambda a: list(a.shape), np.zeros((0, 3)), world_size=1)) == [0, 3]


def test_the_working_folder_and_then_the_callers_path_are_looked_in(
    make_call: Make, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, names in ((here, ("a",)), (there, ("a", "b"))):
        folder.mkdir()
        for name in names:
            (folder / f"in_{name}.py").write_text(f"def f(): return {folder.name!r}")

    def train() -> list[object]:
        import in_a  # type: ignore[import-not-found]  # it is written above
        import in_b  # type: ignore[import-not-found]

        return [in_a.f(), in_b.f(), os.getcwd(), sys.path[0]]

    attempt = make_call(train, call={"path": (str(there),)}, code_dir=str(here), world_size=1)
    assert value(attempt) == ["here", "there", str(here), str(here)]
    assert sorted(path.name for path in here.iterdir()) in (["in_a.py"], ["__pycache__", "in_a.py"])


def test_a_working_folder_that_is_gone_is_named(make_call: Make, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert refused(make_call(int, code_dir=str(gone))) == (
        f"cannot start in `{gone}`: No such file or directory"
    )


def test_a_call_runs_in_a_rank_that_was_forked_from_a_warm_parent(make_call: Make) -> None:
    warm = Warm(imports=(("decimal", ()),), required=True)
    attempt = make_call(lambda: "decimal" in sys.modules, warm=warm)
    assert value(attempt) is True
    assert attempt.events("warm_started")
    assert not attempt.events("cold_start")


LOUD = """\
class Loud:
    def __del__(self):
        print("deleted", __name__)
loud = Loud()
"""
AT_END = """\
import ctypes, weakref
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
def at_end(text):
    libc.__cxa_atexit(libc.puts, ctypes.c_void_p(libc.strdup(text)), None)
at_end(b"imported")
weakref.finalize(libc, print, "finalized")
"""
LATE = "import atexit\natexit.register(lambda: __import__('again'))\n"


@pytest.mark.parametrize("end", ["return", "raise ValueError", "sys.exit(7)", "os._exit(7)"])
def test_the_end_of_a_forked_rank_leaves_what_was_imported_ahead_alone(
    make_call: Make, tmp_path: Path, end: str
) -> None:
    """Functions that C or `weakref.finalize` knew before the fork are not called, and no module is
    deleted that was imported then. What the call has made ends as ever, in Python and in C, what
    is buffered is written, and the exit code stays."""
    (tmp_path / "later.py").write_text(LOUD)
    (tmp_path / "ahead.py").write_text(AT_END + LOUD)
    (tmp_path / "again.py").write_text("print('run')")
    (tmp_path / "sitecustomize.py").write_text(LATE)
    source = f"""
def train():
    import again, ahead, atexit, later, os, sys, threading
    global kept
    kept, ahead.kept = (open(os.environ["SGPU_OUTPUT_DIR"] + name, "w") for name in ("/a", "/b"))
    kept.write("not flushed")
    ahead.kept.write("not flushed")
    threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
    ahead.at_end(b"called")
    atexit.register(print, "atexit")
    {end}
"""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(source, names)
    ends = []
    for warm in (None, Warm(imports=(("ahead", ()), ("again", ())), required=True)):
        attempt = make_call(
            names["train"], warm=warm, env={"PYTHONPATH": str(tmp_path)}, world_size=1
        )
        status = attempt.launch().wait()
        kept = [attempt.text(f"output/{name}") for name in "ab"]
        ends.append((status["exit_code"], status["class"], kept, attempt.log().splitlines()))
        assert not attempt.events("cold_start")
    cold, forked = ends
    if "_exit" in end:
        assert cold == forked
        return
    # Python 3.11.2 ends without writing what a file of a global name has buffered.
    assert cold[:2] == forked[:2]
    assert cold[2][1] == "not flushed"
    made = ["thread", "atexit", "deleted later", "called"]
    assert forked[2:] == (["not flushed"] * 2, ["run", *made])
    assert sorted(cold[3]) == sorted([*forked[3], "finalized", "deleted ahead", "imported"])


def test_a_forked_rank_does_not_wait_for_a_file_that_a_daemon_thread_holds(make_call: Make) -> None:
    def train() -> None:
        import decimal
        import threading

        reader, writer = os.pipe()
        kept = vars(decimal)["kept"] = os.fdopen(writer, "wb")
        threading.Thread(target=kept.write, args=(bytes(1 << 22),), daemon=True).start()
        os.read(reader, 1)  # the thread has begun, and nobody reads the rest

    attempt = make_call(train, warm=Warm(imports=(("decimal", ()),), required=True), world_size=1)
    assert attempt.launch().wait()["exit_code"] == 0
    assert not attempt.events("cold_start")


def test_no_warm_parent_imports_what_lies_on_the_callers_path(
    make_call: Make, tmp_path: Path
) -> None:
    (tmp_path / "decimal.py").write_text("own = True")
    warm = Warm(imports=(("decimal", ()),))

    def train() -> bool:
        import decimal

        return hasattr(decimal, "own")

    attempt = make_call(train, call={"path": (str(tmp_path),)}, warm=warm)
    assert value(attempt) is True
    assert attempt.events("cold_start")


def test_a_rank_can_tell_that_it_is_one(make_call: Make) -> None:
    def train() -> list[object]:
        return [os.environ["RANK"], os.environ["SGPU_RUN_DIR"], os.environ["SGPU_ADDRESS"]]

    attempt = make_call(train)
    assert value(attempt) == ["0", str(attempt.folder), "run.test"]


@pytest.mark.expensive
@pytest.mark.torch
def test_a_process_group_is_there_for_the_call_and_gone_after_it(make_call: Make) -> None:
    require("torch")

    def train() -> list[object]:
        import torch
        import torch.distributed as dist

        total = torch.ones(1) * (dist.get_rank() + 1)
        dist.all_reduce(total)
        return [dist.get_backend(), dist.get_world_size(), total.item()]

    attempt = make_call(train, call={"group": True}).launch()
    attempt.until(lambda: attempt.read()["state"] in ("succeeded", "failed"))
    kept = [json.loads(attempt.text(f"ranks/{rank}/output.json")) for rank in (0, 1)]
    assert kept == [["gloo", 2, 3.0], ["gloo", 2, 3.0]]
    assert "destroy_process_group" not in attempt.log(0, "stderr")


def test_a_group_without_torch_is_refused(make_call: Make) -> None:
    attempt = make_call(int, call={"group": True}, world_size=1)
    (attempt.folder / "code" / "torch.py").write_text("raise ModuleNotFoundError(name='torch')")
    assert refused(attempt) == (
        "entrypoint: `int` is called in a process group, and ranks have no torch: install it in "
        "their environment"
    )


# ── what cannot be loaded ────────────────────────────────────────────────────────────────────────


def test_another_python_is_refused(make_call: Make) -> None:
    own = "{}.{}".format(*sys.version_info[:2])
    assert refused(make_call(int, call={"python": "3.9"})) == (
        f"entrypoint: `int` comes from Python 3.9, and ranks have Python {own} "
        f"(`{sys.executable}`): give them the same one"
    )


def test_another_cloudpickle_is_refused(make_call: Make) -> None:
    assert refused(make_call(int, call={"cloudpickle": "1.6.0"})) == (
        f"entrypoint: `int` was pickled by cloudpickle 1.6.0, and ranks have cloudpickle "
        f"{cloudpickle.__version__}: `pip install cloudpickle==1.6.0` in the environment of the "
        "ranks"
    )


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of our version without any package."""
    folder = tmp_path_factory.mktemp("bare")
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    return str(folder / "bin" / "python")


def test_without_cloudpickle_it_is_said_what_to_install(make_call: Make, bare_python: str) -> None:
    version = cloudpickle.__version__
    assert refused(make_call(lambda: 1, python=bare_python)) == (
        f"entrypoint: `<lambda>` was pickled by cloudpickle {version}, and ranks have none: "
        f"`pip install cloudpickle=={version}` in the environment of the ranks"
    )


def test_what_needs_no_cloudpickle_runs_without(make_call: Make, bare_python: str) -> None:
    attempt = make_call(divmod, 7, 2, call={"cloudpickle": None}, python=bare_python)
    assert value(attempt) == (3, 1)


def test_a_module_that_ranks_lack_is_named_with_the_function(
    make_call: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def helper(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    def train(given: object = None) -> object:
        return only_here.helper()

    remedy = "install it in their environment, or make it a module of the project"
    assert refused(make_call(train)) == (
        f"entrypoint: `train` cannot be loaded: ranks have no module `only_here`: {remedy}"
    )
    assert refused(make_call(only_here.helper)) == (
        f"entrypoint: `helper` cannot be loaded: ranks have no module `only_here`: {remedy}"
    )
    assert refused(make_call(repr, only_here.helper)) == (
        "entrypoint: the arguments of `repr` cannot be loaded: ranks have no module `only_here`: "
        + remedy
    )


def test_a_package_of_another_version_is_told_from_one_that_is_missing(
    make_call: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, text in (("ours", "def helper(): return 1\n"), ("theirs", "")):
        package = tmp_path / folder / "shared"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "stays.py").write_text(text)
    (tmp_path / "ours/shared/moves.py").write_text("def helper(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path / "ours")
    from shared import moves, stays  # type: ignore[import-not-found]

    call = {"path": (str(tmp_path / "theirs"),)}
    assert refused(make_call(moves.helper, call=call)) == (
        "entrypoint: `helper` cannot be loaded: `shared` has no module `shared.moves` here: ranks "
        "have another version of it"
    )
    assert refused(make_call(stays.helper, call=call)).endswith(
        ": ranks have other code, or another version of a package"
    )


def test_an_error_inside_a_module_of_the_users_stays_what_it_is(
    make_call: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("def helper(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import needy  # type: ignore[import-not-found]

    attempt = make_call(needy.helper, world_size=1)
    (attempt.folder / "code" / "needy.py").write_text("import gone_away\n")
    status = attempt.launch().wait()
    assert status["class"] == "exception"
    cause = status["first_cause"]
    assert cause["summary"] == "ModuleNotFoundError: No module named 'gone_away'"
    assert "needy.py" in cause["traceback"]


@pytest.mark.parametrize("name", ["func.pkl", "inputs.pkl", "inputs.bin"])
@pytest.mark.parametrize("damage", [None, b"", b"\x80\x05N."])
def test_what_is_damaged_is_never_loaded(make_call: Make, name: str, damage: bytes | None) -> None:
    np = pytest.importorskip("numpy")
    attempt = make_call(len, np.ones(10_000), world_size=1)
    (attempt.folder / name).unlink()
    if damage is not None:
        (attempt.folder / name).write_bytes(damage)
    assert refused(attempt) == (
        f"entrypoint: `{name.partition('.')[0]}` in `{attempt.folder}` is missing or damaged: "
        "make the call again"
    )


# ── what comes back ──────────────────────────────────────────────────────────────────────────────


def test_a_result_that_is_no_json_comes_back_as_it_was(make_call: Make) -> None:
    np = pytest.importorskip("numpy")
    (array, kind) = value(make_call(lambda: (np.arange(3), {1: {2}}), world_size=1))
    assert (array.tolist(), kind) == ([0, 1, 2], {1: {2}})


@pytest.mark.parametrize(
    ("kind", "place", "hint"),
    [
        ("lock", "a `_thread.lock`", ""),
        ("key", '`result["lock"]`, which is a `_thread.lock`', ""),
        ("deep", '`result[1]["a"][7][1].lock`, which is a `_thread.lock`', ""),
        ("round", '`result["lock"]`, which is a `_thread.lock`', ""),
        ("bottomless", "`result" + 12 * "[0]" + "`, which is a `list`", ""),
        ("own way", f"a `{__name__}.OwnWay`", ""),
        ("generator", "a `generator`", "; return a list of what it yields"),
    ],
)
def test_what_cannot_be_pickled_is_named_down_to_its_place(
    make_call: Make, kind: str, place: str, hint: str
) -> None:
    def train() -> object:
        import threading

        lock = threading.Lock()
        holder = type("Holder", (), {})()
        holder.lock = lock
        round_: dict[str, Any] = {}
        round_.update(itself=round_, lock=lock)
        refusing = {"__reduce__": lambda self: (print, (self.why,)), "why": lock}
        own_way = type("OwnWay", (), refusing)()
        own_way.cache = lock
        bottomless: Any = [lock]
        for _ in range(50):
            bottomless = [bottomless]
        return {
            "round": round_,
            "own way": own_way,
            "bottomless": bottomless,
            "lock": lock,
            "key": {"weights": [1, 2], "lock": lock},
            "deep": [0, {"a": {7: (1, holder)}}],
            "generator": (n for n in range(3)),
        }[kind]

    attempt = make_call(train, world_size=1)
    status = attempt.launch().wait()
    assert (status["state"], status["class"]) == ("failed", "exception")
    refusal = "generator" if kind == "generator" else "_thread.lock"
    assert status["first_cause"]["summary"] == (
        f"TypeError: `train` returned a value that cannot be pickled: {place} "
        f"(cannot pickle '{refusal}' object){hint}"
    )
    assert not list(attempt.folder.glob("ranks/*/output*"))


# ── how a call fails ─────────────────────────────────────────────────────────────────────────────


def kept_exception(attempt: Any, rank: int = 0) -> Any:
    """What a rank left of its exception: the exception, or its type, arguments and attributes."""
    path = attempt.folder / f"ranks/{rank}/0/error.pkl"
    return pickle.loads(path.read_bytes()) if path.exists() else None


def test_an_exception_is_kept_with_its_type_where_it_can_be(make_call: Make) -> None:
    class Diverged(Exception):
        def __init__(self, step: int, loss: float) -> None:
            super().__init__(step, loss)
            self.step = step

    def train() -> None:
        raise Diverged(7, 0.5)

    attempt = make_call(train)
    status = attempt.launch().wait()
    assert status["first_cause"]["summary"].endswith("Diverged: (7, 0.5)")
    error = kept_exception(attempt, status["first_cause"]["rank"])
    assert type(error) is Diverged
    assert (error.step, error.args, error.__traceback__) == (7, (7, 0.5), None)


def test_an_exception_that_its_pickle_would_not_give_back_is_kept_in_parts(
    make_call: Make,
) -> None:
    class Breaks(Exception):
        def __init__(self, step: int, loss: float) -> None:
            super().__init__(f"step {step}: {loss}")
            self.step = step

    class Distorts(Exception):
        def __init__(self, step: object = 0) -> None:
            super().__init__(f"step {step}")
            self.step = step

    def train(kind: str) -> None:
        raise Breaks(3, 0.5) if kind == "breaks" else Distorts(3)

    kept = []
    for kind in ("breaks", "distorts"):
        attempt = make_call(train, kind, world_size=1)
        assert attempt.launch().wait()["class"] == "exception"
        kept.append(kept_exception(attempt))
    assert kept == [
        (Breaks, ("step 3: 0.5",), {"step": 3}),
        (Distorts, ("step 3",), {"step": 3}),
    ]


def test_an_exception_that_holds_what_cannot_be_pickled_is_left_out(make_call: Make) -> None:
    def train() -> None:
        import threading

        raise ValueError(threading.Lock())

    attempt = make_call(train, world_size=1)
    assert attempt.launch().wait()["class"] == "exception"
    assert kept_exception(attempt) is None


def test_an_exception_that_holds_a_secret_is_left_out(make_call: Make) -> None:
    def train() -> None:
        raise ValueError("token " + os.environ["TOKEN"])

    attempt = make_call(train, secrets={"TOKEN": "env:TOKEN"}, world_size=1)
    status = attempt.launch({"TOKEN": "s3cr3t-é-value"}).wait()
    assert status["first_cause"]["summary"] == "ValueError: token ***"
    assert kept_exception(attempt) is None


def test_a_call_that_cannot_be_loaded_leaves_no_exception(make_call: Make) -> None:
    attempt = make_call(int, call={"python": "3.9"}, world_size=1)
    refused(attempt)
    assert kept_exception(attempt) is None


@pytest.mark.parametrize(
    ("code", "text", "exit_code", "printed"),
    [
        (0, "0", 1, ""),
        (None, "0", 1, ""),
        (7, "7", 7, ""),
        (256, "256", 1, ""),
        ("no data", "'no data'", 1, "no data\n"),
    ],
)
def test_a_function_that_calls_sys_exit_has_not_succeeded(
    make_call: Make, code: object, text: str, exit_code: int, printed: str
) -> None:
    def train() -> None:
        sys.exit(code)  # type: ignore[arg-type]

    attempt = make_call(train, world_size=1)
    status = attempt.launch().wait()
    assert (status["state"], status["class"]) == ("failed", "exit_code")
    assert status["exit_code"] == exit_code
    cause = status["first_cause"]
    assert cause["summary"] == (
        f"SystemExit: `train` called `sys.exit({text})` and returned nothing"
    )
    assert "in train" in cause["traceback"]
    assert attempt.log(0, "stderr").startswith(printed)
    assert kept_exception(attempt) is None


def test_an_interrupt_is_a_failure_and_no_exception_for_the_caller(make_call: Make) -> None:
    def train() -> None:
        raise KeyboardInterrupt

    attempt = make_call(train, world_size=1)
    status = attempt.launch().wait()
    assert (status["class"], status["exit_code"]) == ("exception", 1)
    assert status["first_cause"]["summary"] == "KeyboardInterrupt"
    assert kept_exception(attempt) is None


def test_a_process_that_leaves_by_itself_leaves_no_result(make_call: Make) -> None:
    attempt = make_call(os._exit, 0, world_size=1)
    assert attempt.launch().wait()["state"] == "succeeded"
    assert not list(attempt.folder.glob("ranks/*/output*"))


def test_a_rank_that_leaves_when_it_is_told_to_is_not_blamed(make_call: Make) -> None:
    def train(rank: int) -> None:
        import time

        flag = os.environ["SGPU_OUTPUT_DIR"] + "/armed"
        if rank == 0:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            open(flag, "w").close()
            time.sleep(600)
        while not os.path.exists(flag):
            time.sleep(0.005)
        raise ValueError("mine")

    retry = RetrySpec(max=0)
    attempt = make_call(train, call={"fill": ("rank",)}, retry=retry)
    status = attempt.launch().wait()
    assert status["first_cause"]["summary"] == "ValueError: mine"
    assert [rank["state"] for rank in status["ranks"]] == ["stopped", "failed"]


def test_tracebacks_show_the_frames_of_the_user_alone(make_call: Make) -> None:
    def train() -> None:
        raise ValueError("here")

    status = make_call(train, world_size=1).launch().wait()
    trace = status["first_cause"]["traceback"]
    assert "in train" in trace
    assert "/_air.py" not in trace
    assert "/_call.py" not in trace
