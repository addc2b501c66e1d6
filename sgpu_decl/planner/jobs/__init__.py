"""What becomes of declared jobs.

A job goes on by itself; sgpu owns only what it declares. So its *document* is planned
(`model/job`): the platform's own settings, with lists of named members as mappings, so that each
setting has a path.

    Job (config) ─▶ the backend describes it ─▶ wanted ──┐
    State ─────────────────────────────────── recorded ──┼─▶ config change: recorded ≠ wanted
    the live job, less its defaults ────────────▶ live ──┘   drift: live ≠ wanted = recorded

`ignore_changes` puts what is live into what is sent, since a reset replaces everything.

A job that launches a run has two more parts in its spec: `run`, what is launched as its YAML says
it, and `staged`, the digests of its code and environment. A changed run is shown in these; the
settings that follow from them are not shown. The planner leaves such a run to its job, unless
`--rerun` names it, and says so.
"""
