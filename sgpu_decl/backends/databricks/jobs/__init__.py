"""Lakeflow jobs, through the Jobs API.

**Made once.** The API has no idempotency token for `create`. So a job carries the token of its
intent as a tag, is looked for by it before it is made, and the request is sent as a body that the
SDK cannot send twice. The token belongs to one creation: a copy that somebody made of a job with
its tag is never taken for one that is made later. A job whose credentials lead to another workspace
now is refused, not made again.

**Its launch folder**, one for each version, is filled before the job is made or reset, and its
marker is the last file in it. Older versions go when no launch is active. All launches of a job
share that folder, and nodes are not told which launch they are of: `agent/node/platform_attempts`
groups attempts by how often the platform starts a launch.
"""
