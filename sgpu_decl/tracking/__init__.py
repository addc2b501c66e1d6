"""MLflow: the tracker process that makes one MLflow run per attempt, and where its store lies.

The tracker also runs on nodes that have no sgpu, from an archive of this room. What it imports at
run time is the standard library, `agent/` and this room, at Python 3.10: see
`tests/tracking/test_archive.py`.
"""
