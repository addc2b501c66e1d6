"""Compares a workspace with what sgpu assumes of the platform, for `sgpu doctor -t TARGET`.

`model/assumptions.yaml` is the one list of assumptions. The free checks measure what costs nothing,
through the code that stages and submits runs, over a connection of their own, because cached
answers may be old. The measured values are a `Profile`, which the emulator follows.

The probe submits a few short runs, whose `command.sh` starts `agent.zip probe` instead of `node`.
Each has a folder with its own copy of the agent, so that deleting the folder deletes all of it.
What nodes report becomes findings by pure functions.
"""
