"""The programs of a job, on the nodes of the cluster: Python 3.10, the standard library and the
node agent, whose archive has this package too.

    job.sh ─▶ bootstrap ─▶ job_program ─▶ srun ─▶ bootstrap ─▶ node_start ─▶ agent.node.program
              on the first node                   on each node

Two jobs may have been submitted for one launch, where an answer of Slurm was lost. The one that
makes the file `claim.json` has the launch; the other ends at once. A job that Slurm starts again
keeps its id (https://slurm.schedmd.com/scontrol.html#OPT_requeue), and so its launch. Evidence: E1.
"""
