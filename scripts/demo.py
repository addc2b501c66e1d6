"""The main example by hand: plan, apply, then look at what came out. `make demo` runs it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "fsdp"
FILE = "examples/fsdp/run.yaml"
SGPU = Path(sys.executable).with_name("sgpu")


def step(*words: str) -> None:
    """Run one `sgpu` command as a user would, shown; leave with its code if it fails."""
    say(f"\n$ sgpu {' '.join(words)}\n")
    code = subprocess.run([SGPU, *words], cwd=ROOT, check=False).returncode
    if code != 0:
        sys.exit(code)


def ask(*words: str) -> Any:
    """Return the data of one `sgpu ... -o json`."""
    done = subprocess.run(
        [SGPU, *words, "--project", EXAMPLE, "-o", "json"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(done.stdout)["data"]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    step("plan", FILE)
    step("apply", "-y", FILE)

    run = ask("show", "fsdp")
    folder = Path(run["links"]["folder"])
    say(f"\n$ python examples/fsdp/load_checkpoint.py {folder / 'output'}\n")
    subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLE / "load_checkpoint.py", folder / "output"],
        check=True,
    )

    histories = [result["value"]["loss"] for result in ask("results", "fsdp")["results"]]
    tracked = run["links"].get("mlflow")
    say(f"\nresults      sgpu results fsdp --project {EXAMPLE}")
    say(f"logs         {folder / 'ranks'}")
    say(f"checkpoints  {folder / 'output' / 'checkpoints'}")
    if tracked:
        say(f"MLflow run   {tracked['run_id']} in experiment `{tracked['experiment']}`")
        say(f"             {SGPU} mlflow ui --project {EXAMPLE}")
    first, last = histories[0][0], histories[0][-1]
    say(f"loss         {first:.4f} in the first epoch, {last:.4f} in the last")
    if not all(history[-1] < history[0] for history in histories):
        say("\nthe loss has not gone down")
        return 1
    say("\nthe loss has gone down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
