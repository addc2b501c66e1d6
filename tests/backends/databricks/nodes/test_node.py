"""Nodes of a run as the platform starts them: what ranks find there, and what is brought back."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.host.interfaces import interface_to
from sgpu_decl.agent.system.processes import carriers
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.model.call import Call, Pickled
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.testing.file_search import files_with

TELL = """
import os, sys
def main():
    given = dict(os.environ)
    with open("main.py", "a") as file:
        file.write("# mine")
    return {"env": given, "cwd": os.getcwd(), "path": sys.path[0], "executable": sys.executable}
"""
FAIL = "def main(): raise ValueError('a mistake')"


@pytest.mark.parametrize("nodes", [1, 2])
def test_ranks_find_what_they_find_everywhere(make_hosted: Any, nodes: int) -> None:
    hosted = make_hosted(TELL, nodes=nodes, config={"env": {"variables": {"LR": "0.1"}}})
    assert hosted.run(MLFLOW_RUN_ID="abc", PYTHONPATH="/nowhere") == [0] * nodes, hosted.log()
    for rank in range(2):
        node = rank * (nodes - 1)
        told = hosted.read(f"ranks/{rank}/output.json", node=node)
        found = told["env"]
        assert told["cwd"] == told["path"] == f"{found['SGPU_RUN_DIR']}/code"
        expected = {
            "RANK": str(rank), "LOCAL_RANK": str(rank if nodes == 1 else 0), "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": str(2 // nodes), "NODE_RANK": str(node), "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(nodes), "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2",
            "ROLE_NAME": "default", "NUM_NODES": str(nodes), "REPLICA_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": hosted.token,
            "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "LR": "0.1", "MLFLOW_RUN_ID": "abc",
            "PYTHONPATH": "/nowhere", "NCCL_DEBUG": "INFO", "SGPU_ADDRESS": "run.test",
            "SGPU_RUN_NAME": "test", "SGPU_ATTEMPT": "1",
            "SGPU_OUTPUT_DIR": f"{found['SGPU_RUN_DIR']}/output",
        }  # fmt: skip
        assert {name: found.get(name) for name in expected} == expected
        assert "SGPU_PROJECT_DIR" not in found
    assert hosted.outcome()["state"] == "succeeded"
    assert hosted.report()["mlflow_run_id"] == "abc"
    # Each node has a copy of the code; the platform's stays as it was.
    assert Path(hosted.variables["CODE_SOURCE_PATH"], "main.py").read_text() == TELL


def test_it_runs_in_any_folder_and_where_the_platform_says_nothing_of_nodes(
    make_hosted: Any,
) -> None:
    hosted = make_hosted("def main(): return {1}")
    kept = {"PATH", "CODE_SOURCE_PATH", "TMPDIR"}
    environment = {**os.environ, **hosted.variables, "TMPDIR": str(hosted.home)}
    done = subprocess.run(
        ["bash", "command.sh"], cwd=hosted.launch, check=False, capture_output=True, text=True,
        env={name: value for name, value in environment.items() if name in kept},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    value = hosted.read("ranks/1/output.json")
    assert value == {"pickle": "output.pkl", "repr": "{1}"}
    assert pickle.loads(hosted.back("ranks/1/output.pkl").read_bytes()) == {1}


def test_a_node_that_reads_its_command_from_elsewhere_finds_the_launch_folder(
    make_hosted: Any,
) -> None:
    hosted = make_hosted("def main(): return 7", config={"gpus": 1})
    environment = {"PATH": os.environ["PATH"], **hosted.variables, "TMPDIR": str(hosted.home)}
    with (hosted.launch / "command.sh").open() as script:
        done = subprocess.run(
            ["bash"], stdin=script, cwd=hosted.home, check=False, capture_output=True, text=True,
            env=environment,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert hosted.read("ranks/0/output.json") == 7


VARIABLES = """
import os
def main(): return [os.environ.get(it) for it in ("MLFLOW_TRACKING_URI", "GLOO_SOCKET_IFNAME")]
"""


def test_ranks_find_the_workspaces_mlflow_and_the_way_to_other_nodes(make_hosted: Any) -> None:
    hosted = make_hosted(VARIABLES, nodes=2)
    assert hosted.run(MLFLOW_RUN_ID="0123") == [0, 0]
    for node in (0, 1):  # the platform's address of node 0 is that of the loopback here
        assert hosted.read(f"ranks/{node}/output.json", node=node) == ["databricks", "lo"]


@pytest.mark.parametrize(
    ("given", "uri", "interface"),
    [
        ({"MLFLOW_RUN_ID": "0123", "MLFLOW_TRACKING_URI": "http://x"}, "http://x", "lo"),
        ({}, None, "lo"),
        ({"GLOO_SOCKET_IFNAME": "eth7"}, None, "eth7"),
    ],
    ids=["store", "no-run", "interface"],
)
def test_what_the_platform_says_itself_stays(
    make_hosted: Any, given: dict[str, str], uri: str | None, interface: str
) -> None:
    hosted = make_hosted(VARIABLES, config={"gpus": 1})
    assert hosted.run(**given) == [0]
    assert hosted.read("ranks/0/output.json") == [uri, interface]


def test_the_interface_is_that_of_the_kernels_route() -> None:
    rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    default = [row[0] for row in rows if (row[1], row[7]) == ("00000000", "00000000")]
    if default:
        assert interface_to("203.0.113.1") in default
    assert interface_to("127.0.0.1") == "lo"
    assert interface_to("no such host") is None


def test_a_call_travels_to_nodes(make_hosted: Any, tmp_path: Path) -> None:
    call = Call(
        name="sum", function=Pickled(stream=pickle.dumps(sum, 5)),
        inputs=Pickled(stream=pickle.dumps((([1, 2, 3],), {}), 5)), cloudpickle=None,
        python="{}.{}".format(*sys.version_info[:2]), folder=tmp_path,
        path=(str(tmp_path / "of the caller"),), attended=True,
    )  # fmt: skip
    hosted = make_hosted(code=False, call=call)
    assert hosted.run() == [0], hosted.log()
    assert hosted.read("ranks/1/output.json") == 6


def test_ranks_have_the_environment_that_came_in_packs(
    make_hosted: Any, make_environment: Any, tmp_path: Path
) -> None:
    made = make_environment({"carried/__init__.py": "whose = 'the packs'\n"})
    packs = tmp_path / "staging" / "objects" / "packs"
    send(made.manifest, made.objects, FolderPlace(packs), str(packs), Quiet())
    source = """
import os, shutil
import carried
def main():
    python = shutil.which("python")
    return [carried.whose, carried.__file__, python, os.environ["SGPU_SITE"]]
"""
    hosted = make_hosted(source, environment=made.manifest.digest)
    assert hosted.run() == [0], hosted.log()
    whose, file, python, site = hosted.read("ranks/0/output.json")
    assert whose == "the packs"
    run_dir, _, inside = file.partition("/environment/tree/")
    assert inside.endswith("site-packages/carried/__init__.py")
    assert (python, site) == (f"{run_dir}/environment/tree/bin/python", f"{run_dir}/site")


def test_an_environment_of_another_python_is_told(
    make_hosted: Any, make_environment: Any, tmp_path: Path
) -> None:
    made = make_environment({"one.py": ""}, version="3.9.1")
    packs = tmp_path / "staging" / "objects" / "packs"
    send(made.manifest, made.objects, FolderPlace(packs), str(packs), Quiet())
    hosted = make_hosted(environment=made.manifest.digest)
    assert hosted.run() == [1]
    cause = hosted.outcome()["first_cause"]
    assert cause["class"] == "launch_failed_user"
    assert "does not fit this node" in cause["summary"]
    assert "3.9" in cause["summary"]


@pytest.mark.expensive
def test_several_runs_share_a_machine(make_hosted: Any) -> None:
    source = "import os\ndef main(): return os.environ['MASTER_PORT']"
    runs = [make_hosted(source, nodes=2).start() for _ in range(3)]
    assert [hosted.wait() for hosted in runs] == [[0, 0]] * 3
    ports = [hosted.read(f"ranks/{n}/output.json", node=n) for hosted in runs for n in (0, 1)]
    assert len(set(ports)) == 3
    assert ports[::2] == ports[1::2]


def test_files_that_nodes_see_late_or_torn_are_waited_for(make_hosted: Any, tmp_path: Path) -> None:
    hosted = make_hosted("def main(): return 1")
    (archive,) = (tmp_path / "staging" / "objects" / "agent").iterdir()
    whole, spec = archive.read_bytes(), (hosted.launch / "spec.json").read_bytes()
    archive.write_bytes(whole[:-1])
    (hosted.launch / "spec.json").unlink()
    hosted.start()
    run_dir = hosted.home / "node-0"
    hosted.until(lambda: list(run_dir.glob("sgpu-node-*/agent.zip")))
    archive.write_bytes(whole)
    hosted.until(lambda: list(run_dir.glob("sgpu-node-*/_air.py")))
    (hosted.launch / "spec.json").write_bytes(spec[:10])
    (hosted.launch / "spec.json").write_bytes(spec)
    assert hosted.wait() == [0], hosted.log()
    assert hosted.read("ranks/0/output.json") == 1


# ── failures ─────────────────────────────────────────────────────────────────────────────────────


def test_a_mistake_of_the_user_is_told_and_not_repeated(make_hosted: Any) -> None:
    hosted = make_hosted(FAIL, nodes=2, config={"retry": {"max": 3, "backoff": "0s"}})
    assert hosted.run() == [1, 1]
    outcome = hosted.outcome()
    assert (outcome["state"], outcome["class"]) == ("failed", "exception")
    assert outcome["first_cause"]["summary"] == "ValueError: a mistake"
    first = outcome["first_cause"]["rank"]  # the other one may be stopped before it fails
    assert hosted.read(f"ranks/{first}/0/error.json", node=first)["message"] == "a mistake"
    assert f"[rank {first} err] ValueError: a mistake" in hosted.log(first).splitlines()
    assert hosted.run() == [1, 1]  # the platform tries again
    assert "settled this run, with 1" in hosted.log(0)
    assert "settled this run, with 1" in hosted.log(1)
    assert [path.name for path in (hosted.launch / "back").iterdir()] == ["0"]


@pytest.mark.parametrize("failing", [0, 1])
def test_no_node_fails_before_all_have_brought_back_what_they_have(
    make_hosted: Any, failing: int
) -> None:
    hosted = make_hosted(
        f"import os\ndef main():\n    if os.environ['RANK'] == '{failing}':\n"
        "        raise ValueError",
        nodes=2,
    ).start()
    hosted.until(lambda: any(node.poll() is not None for node in hosted.started))
    assert [hosted.report(node=node) is not None for node in (0, 1)] == [True, True]
    assert hosted.wait() == [1, 1]


def test_a_rank_that_is_killed_is_started_again_on_its_node(make_hosted: Any) -> None:
    source = """
import os, signal
def main():
    print("before the end", flush=True)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
        os.write(1, b"and no newline")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.environ["TORCHELASTIC_RESTART_COUNT"]
"""
    hosted = make_hosted(source, config={"retry": {"max": 1, "backoff": "0s"}})
    assert hosted.run() == [0], hosted.log()
    assert hosted.outcome()["restart"] == 1
    assert hosted.read("ranks/1/output.json") == "1"
    assert hosted.lines(1) == ["before the end", "and no newline", "before the end"]


def test_a_rank_that_crashes_says_so_to_the_platform(make_hosted: Any) -> None:
    source = "import os, signal\ndef main(): os.kill(os.getpid(), signal.SIGSEGV)"
    hosted = make_hosted(source)
    assert hosted.run() == [139]
    assert hosted.outcome()["class"] == "signal_self"
    found = hosted.report()
    for name, file in found.pop("files").items():
        content = hosted.back(name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        assert file == {"bytes": len(content), "sha256": digest}
    assert found.pop("outcome")["exit_code"] == 139
    assert found == {
        "v": 1, "exit_code": 139, "mlflow_run_id": None, "open_run": False, "left": [],
        "incomplete": None, "large_files": "/Volumes", "masked": [],
    }  # fmt: skip
    # All else in the folder is named by the report.
    assert not {"outcome.json", "status.json", "done"} & set(os.listdir(hosted.back("")))


BLOCK = """
import os, signal
def main():
    restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if restart == "0":
        print("up", flush=True)
        while True: signal.pause()
    return restart
"""


def test_after_the_death_of_a_node_the_next_attempt_goes_on(make_hosted: Any) -> None:
    hosted = make_hosted(BLOCK, nodes=2, config={"retry": {"max": 1, "backoff": "0s"}}).start()
    hosted.until(lambda: hosted.lines(0, 0) and hosted.lines(1, 1))
    hosted.lose(1)
    assert hosted.wait()[0] == 1
    outcome = hosted.outcome()
    assert (outcome["class"], outcome["restart"]) == ("node_lost", 0)
    assert "node 1 was lost" in outcome["first_cause"]["summary"]
    assert hosted.run() == [0, 0], hosted.log()
    assert hosted.read("ranks/1/output.json", node=1, attempt=1) == "1"
    assert hosted.outcome(attempt=1)["restart"] == 1


def test_an_attempt_that_died_with_all_nodes_counts(make_hosted: Any) -> None:
    hosted = make_hosted(BLOCK, config={"retry": {"max": 1, "backoff": "0s"}}).start()
    hosted.until(lambda: hosted.lines(0) and hosted.lines(1))
    hosted.lose(0)
    hosted.wait()
    assert hosted.run() == [0], hosted.log()
    assert hosted.read("ranks/0/output.json", attempt=1) == "1"


@pytest.mark.parametrize("asked", [0, 1])
def test_sigterm_ends_the_ranks_and_what_they_left_is_brought_back(
    make_hosted: Any, asked: int
) -> None:
    source = """
import os, signal, sys
def main():
    def end(*_):
        with open(os.environ["SGPU_OUTPUT_DIR"] + "/last", "w") as file:
            file.write("checkpoint")
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("up", flush=True)
    while True: signal.pause()
"""
    hosted = make_hosted(source, nodes=2, config={"grace": "30s"}).start()
    hosted.until(lambda: hosted.lines(0, 0) and hosted.lines(1, 1))
    hosted.started[asked].terminate()
    assert hosted.wait() == [130, 130]
    assert hosted.outcome()["state"] == "cancelled"
    for node in (0, 1):
        assert hosted.back("output/last", node=node).read_text() == "checkpoint"
        assert hosted.report(node=node)["exit_code"] == 130


def test_sigterm_before_ranks_are_there_is_heard(make_hosted: Any, make_environment: Any) -> None:
    made = make_environment({"one.py": ""})  # its packs are nowhere
    hosted = make_hosted(BLOCK, environment=made.manifest.digest).start()
    hosted.until(lambda: "making the environment" in hosted.log())
    hosted.started[0].terminate()
    assert hosted.wait() == [130]
    assert hosted.outcome()["state"] == "cancelled"


def test_sigterm_while_files_are_waited_for_is_heard(make_hosted: Any) -> None:
    hosted = make_hosted(BLOCK)
    (hosted.launch / "spec.json").unlink()
    hosted.start()
    hosted.until(lambda: list(hosted.home.glob("node-0/sgpu-node-*/_air.py")))
    hosted.started[0].terminate()
    assert hosted.wait() == [70]
    assert "asked to stop" in hosted.outcome()["first_cause"]["summary"]


def test_a_node_without_code_is_told_by_the_first_node(make_hosted: Any) -> None:
    hosted = make_hosted(BLOCK, nodes=2, config={"retry": {"max": 2, "backoff": "0s"}})
    hosted.start(but={1: {"CODE_SOURCE_PATH": "/nowhere"}})
    assert hosted.wait() == [1, 1]
    outcome = hosted.outcome()
    assert (outcome["class"], outcome["restart"]) == ("staging_failed", 0)
    assert outcome["first_cause"]["summary"] == (
        "node 1: the platform brought no code: CODE_SOURCE_PATH is `/nowhere`"
    )


def test_an_agent_that_dies_leaves_an_outcome(make_hosted: Any) -> None:
    source = """
import json, os, signal
def main():
    with open(os.environ["SGPU_RUN_DIR"] + "/identity.json") as file:
        who = json.load(file)
    os.kill(who["guardian"], signal.SIGKILL)
    os.kill(who["pid"], signal.SIGKILL)
    while True: signal.pause()
"""
    hosted = make_hosted(source, config={"gpus": 1})
    assert hosted.run() == [70]
    assert hosted.outcome()["class"] == "supervisor_lost"


def test_ranks_end_with_the_program_that_looks_after_them(make_hosted: Any) -> None:
    hosted = make_hosted(BLOCK).start()
    hosted.until(lambda: hosted.lines(0) and hosted.lines(1))
    hosted.started[0].kill()
    hosted.until(lambda: carriers(hosted.token) == [])


# ── what is shown, kept and hidden ───────────────────────────────────────────────────────────────


def test_all_lines_are_shown_whole_and_in_their_order(make_hosted: Any) -> None:
    source = """
import os, sys
def main():
    for number in range(20_000):
        print(number, "x" * (number % 90))
        if number % 10 == 0:
            print("error", number, file=sys.stderr)
    os.write(1, b"y" * 3_000_000 + b"\\n\\xff\\n")
"""
    hosted = make_hosted(source)
    assert hosted.run() == [0]
    shown = hosted.logs[0].read_bytes().split(b"\n")
    for rank in range(2):
        mark, error = b"[rank %d] " % rank, b"[rank %d err] " % rank
        lines = [line[len(mark) :] for line in shown if line.startswith(mark)]
        assert lines[:20_000] == [b"%d %s" % (n, b"x" * (n % 90)) for n in range(20_000)]
        assert b"".join(lines[20_000:]) == b"y" * 3_000_000 + b"\xff"
        errors = [line[len(error) :] for line in shown if line.startswith(error)]
        assert errors == [b"error %d" % n for n in range(0, 20_000, 10)]
    assert all(line.startswith(b"[rank ") for line in shown[:-1])


def test_ranks_wait_for_nobody_who_reads_their_lines(make_hosted: Any) -> None:
    source = """
def main():
    for number in range(30_000):
        print(number)
"""
    hosted = make_hosted(source, config={"gpus": 1})
    environment = {**os.environ, **hosted.variables, "TMPDIR": str(hosted.home)}
    with subprocess.Popen(
        ["bash", hosted.launch / "command.sh"], env=environment, stdout=subprocess.PIPE
    ) as node:
        hosted.until(lambda: list(hosted.home.glob("sgpu-node-*/outcome.json")))
        shown, _ = node.communicate()
    assert node.returncode == 0
    assert shown.splitlines() == [b"[rank 0] %d" % number for number in range(30_000)]


def test_secrets_are_nowhere(make_hosted: Any) -> None:
    source = """
import json, os
def main():
    secret = os.environ["HF_TOKEN"]
    print("it is", secret)
    os.write(2, b"and " + secret.encode() + b" unfinished")
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": "RuntimeError: " + secret}}, file)
    os._exit(3)
"""
    secrets = {"env": {"secrets": {"HF_TOKEN": "scope/key"}}}
    hosted = make_hosted(source, config={"gpus": 1, **secrets})
    named = [{"name": "HF_TOKEN", "secret_scope": "scope", "secret_key": "key"}]
    assert json.loads((hosted.launch / "secret_env_vars.json").read_bytes()) == named
    assert hosted.run(HF_TOKEN="hf_very_secret") == [3]
    assert "it is ***" in hosted.lines(0)
    assert hosted.read("ranks/0/0/error.json")["message"]["message"] == "RuntimeError: ***"
    for log in hosted.logs:
        assert b"hf_very_secret" not in log.read_bytes(), log
    assert files_with(b"hf_very_secret", hosted.launch) == []


def test_a_secret_without_a_value_is_told_before_ranks_start(make_hosted: Any) -> None:
    hosted = make_hosted(TELL, config={"env": {"secrets": {"HF_TOKEN": "scope/key"}}})
    assert hosted.run() == [1]
    cause = hosted.outcome()["first_cause"]
    assert (cause["class"], cause["summary"]) == (
        "launch_failed_user", "the platform gave no value for the secret `HF_TOKEN`",
    )  # fmt: skip


def test_output_is_brought_back_but_for_what_is_too_large(make_hosted: Any) -> None:
    source = """
import os
def main():
    out = os.environ["SGPU_OUTPUT_DIR"]
    os.makedirs(out + "/model", exist_ok=True)
    for name, size in (("model/small", 10), ("large", 1 << 30)):
        with open(out + "/" + name, "wb") as file:
            file.truncate(size)
    os.symlink("/etc/passwd", out + "/link")
"""
    hosted = make_hosted(source, config={"gpus": 1})
    assert hosted.run() == [0]
    assert hosted.back("output/model/small").read_bytes() == bytes(10)
    assert {path.name for path in hosted.back("output").iterdir()} == {"model"}
    assert hosted.report()["left"] == ["large"]
    (note,) = hosted.log().splitlines()
    assert "1 files of SGPU_OUTPUT_DIR (1.1 GB) are not uploaded, such as `large`" in note
    assert "/Volumes" in note


def test_ranks_fork_from_a_warm_parent_on_every_node(make_hosted: Any) -> None:
    config = {"gpus": 4, "launch": {"warm": ["decimal"]}}
    hosted = make_hosted("import decimal\ndef main(): return 1", nodes=2, config=config)
    assert hosted.run() == [0, 0], hosted.log(1)
    for node in (0, 1):
        events = hosted.back("events.log", node=node).read_text()
        assert "warm_ready" in events
        assert "cold_start" not in events


def test_a_node_without_torch_says_so_if_its_base_promises_it(
    make_hosted: Any, tmp_path: Path
) -> None:
    real = Path(sys.executable).resolve()
    (tmp_path / "bare" / "bin").mkdir(parents=True)
    (tmp_path / "bare" / "bin" / "python3").symlink_to(real)
    (tmp_path / "bare" / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
    path = f"{tmp_path / 'bare' / 'bin'}:{os.environ['PATH']}"
    hosted = make_hosted("def main(): return 1", config={"env": {"base": "ai-5"}})
    assert hosted.run(PATH=path) == [0], hosted.log()
    (line,) = hosted.log().splitlines()
    assert line.startswith("sgpu: neither `")
    assert "`env.base: gpu-" in line
    other = make_hosted("def main(): return 1")
    assert other.run(PATH=path) == [0]
    assert other.log() == ""
