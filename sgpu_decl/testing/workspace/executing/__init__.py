"""What is submitted to the workspace, executed as processes of this machine.

    Runner ─▶ Execution (a run: its tasks in order) ─▶ Attempting (GPUs, MLflow run, preparation)
      │                                                  └─▶ Gang ─▶ Node ═ pipes ═ keeper ─▶ bash
      └─ records in the tenant's tables; a change is one transaction

A run is a thread, as a task is; both wait for events alone. A gang is one `select` over the nodes'
output and reports, words from other threads, and the deadline. The first node that fails decides
how the attempt ended, and stops the others.

A keeper stands above each node. It adopts orphans, so its end is the end of everything below it. It
dies when its stdin ends, so the nodes end with the server. A node that is lost is a keeper that
leaves without a report.

Workspace paths are real on a node where the kernel allows a mount namespace: the tenant's trees lie
at `/Workspace` and `/Volumes`, and nothing is made on the host. Elsewhere variables name the real
folders. Logs are written once, as chunks, to where the run's MLflow artifacts lie; MLflow is its
own application in a process, started when it is first asked for.
"""
