"""Small programs that try the Python libraries of a node, each in its own process.

A program writes its answer to stdout, behind the mark that is its last argument. Its environment is
that of ranks.
"""

from __future__ import annotations

import json
import subprocess

from sgpu_decl.agent.system.marked_answer import MARK, marked_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_FRAME = """
import importlib.util, json, os, sys, time
answer = {"there": importlib.util.find_spec(%r) is not None}
began = time.monotonic()
if answer["there"]:
    try:
        measure(answer)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}".partition(". Config:")[0][:500]
answer["seconds"] = round(time.monotonic() - began, 1)
print("\\n" + sys.argv[-1] + json.dumps(answer), flush=True)
"""

MLFLOW = (
    """
def measure(answer):
    import mlflow
    answer["version"] = mlflow.__version__
    run = os.environ["MLFLOW_RUN_ID"]
    client = mlflow.MlflowClient()
    answer["artifact_scheme"] = client.get_run(run).info.artifact_uri.partition(":")[0]
    client.log_param(run, sys.argv[1], "1")
    answer["param"] = True
    client.log_text(run, "1", sys.argv[1] + ".txt")
    answer["artifact"] = True
"""
    + _FRAME % "mlflow"
)
"""Logs a parameter and an artifact, named by its argument, to the run that the platform made."""

INDEX = (
    """
def measure(answer):
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
        argv += ["--retries", "1", "--timeout", "10", "--dest", folder, "six"]
        ran = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answer["works"] = ran.returncode == 0 and bool(os.listdir(folder))
"""
    + _FRAME % "pip"
)
"""Downloads a small package, from the index that pip is told to use."""

SDK = (
    """
def measure(answer):
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.config import Config
    config = Config(http_timeout_seconds=20, retry_timeout_seconds=20)
    answer["auth_type"] = config.auth_type
    WorkspaceClient(config=config).current_user.me()
    answer["works"] = True
"""
    + _FRAME % "databricks"
)
"""Asks the workspace for its user, with the credentials that the SDK finds."""

COLLECTIVE = (
    """
def measure(answer):
    import datetime
    import torch
    import torch.distributed as dist
    backend, node, nodes, address, port = sys.argv[1:-1]
    if backend == "nccl" and not torch.cuda.is_available():
        answer["skipped"] = "there is no GPU"
        return
    dist.init_process_group(
        backend, rank=int(node), world_size=int(nodes),
        init_method=f"tcp://{address}:{port}", timeout=datetime.timedelta(seconds=60),
    )
    summed = torch.ones(4, device="cuda:0" if backend == "nccl" else "cpu")
    dist.all_reduce(summed)
    answer["sum"] = summed.tolist()
    answer["works"] = summed.tolist() == [float(nodes)] * 4
    dist.destroy_process_group()
"""
    + _FRAME % "torch"
)
"""One all-reduce over all nodes. Arguments: backend, this node, how many, address, port."""


def run_program(
    python: str,
    program: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    seconds: float = 120.0,
) -> dict[str, Any]:
    """Run a program; return its answer, or why there is none."""
    try:
        process = subprocess.run(
            [python, "-c", program, *arguments, MARK],
            env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {seconds:g} s"}
    except OSError as error:
        return {"error": str(error)}
    try:
        answer = json.loads(marked_answer(process.stdout))
    except ValueError:
        return {"error": f"it ended with {process.returncode}"}
    return answer if isinstance(answer, dict) else {"error": "its answer is not an object"}
