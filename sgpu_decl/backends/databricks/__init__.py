"""Runs on Databricks serverless GPU compute, through the official SDK.

    planning/ ─▶ launching/ ─▶ the platform starts `command.sh` ─▶ agent/node ─▶ watching/
        └──────────┴── api/ (login, connection, files, errors) ────────────────────┘

**One connection.** `api/account` finds the workspace in the YAML, the environment and the profiles,
without a request. `api/connection` imports the SDK and builds its client in a thread, which starts
before planning reads the code of a run. Requests that the SDK has no method for go through its
client too, so its authentication and its retries hold for all. `api/sdk_errors` is the one place
that knows the SDK's errors.

**Planning** reads the config, the source, and what the workspace offers. Answers are cached for ten
minutes: a plan that has them all does not connect, and does not import the SDK. A workspace that
cannot be asked is a warning.

**A launch** is: shared objects, the launch folder with `spec.json` last, its marker, `runs/submit`
with the intent's token, and the marker once more, with the id of the run. Doing it again after a
crash gives the same run, since the platform knows the token. If the answer to the submit is lost
for good, the intent stays open and the next apply does it again. A request that is refused leaves
nothing staged.

**The marker is the truth**, and the state's lineage and token lead to it. This machine remembers it
(`databricks.json`), and how an attempt has ended. The platform's ending and the agent's outcome are
put together in `remote/watching/`: the agent knows why a run failed, unless the platform took
it away.

**MLflow.** The platform makes one run for each of its attempts. Nodes may lack credentials, so the
client writes name, tags and parameters as soon as it sees the run. The experiment of a run with
`permissions` is made and shared before anything is submitted. Tables of attempts read the metrics
with the same login, in one search for each experiment.

**Waiting in line** is the platform's. So `max_parallel` and `on_active: queue` are refused, and
`replace` stops the old attempt and waits for its end before it submits.

**Two clocks** are never compared. The first answer of the workspace tells how far its clock is
ahead: times that it gives are compared with its clock, and shown by this machine's.

`model/assumptions.yaml` has what sgpu assumes of the platform, with sources; `conformance/`
measures it.
"""
