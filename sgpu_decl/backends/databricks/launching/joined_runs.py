"""Launches that come after each other, submitted as the tasks of one run (`after`).

The platform orders the tasks of one run, and not runs (`depends_on` of `SubmitTask` in
`databricks/sdk/service/jobs.py`). The request is kept as a file in the launch folder of the first
of them, and that file is what counts after a crash: it is written once all of them are staged, and
before the request is sent. Whoever finds it sends the same request with the same idempotency token,
which the platform answers with the same run (`JobsAPI.submit`, same file).
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu_decl.backends.databricks.launching.experiment import platform_name
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch, StagedTask, joined_request
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord

_FILE = "submission.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedSubmission:
    """The request, `path` of its file, and by the token of each launch what its marker is to say of
    its task: `task` is its key, `after` has the names of the attempts that it waits for, by the
    keys of their tasks."""

    path: str
    body: Mapping[str, Json]
    tasks: Mapping[str, Mapping[str, Json]]

    @property
    def token(self) -> str:
        """The idempotency token of the request."""
        return str(self.body["idempotency_token"])

    def to_bytes(self) -> bytes:
        """What `read_submission` reads."""
        tasks: dict[str, Json] = {token: dict(facts) for token, facts in self.tasks.items()}
        return canonical({"body": dict(self.body), "tasks": tasks}).encode()


def joined_token(records: Sequence[LaunchRecord]) -> str:
    """The idempotency token of several launches as one, at most 64 characters: the same launches
    have the same one."""
    text = canonical([record.token for record in records])
    hashed = hashlib.sha256(text.encode()).digest()
    return "sgpu1-joined-" + base64.b32encode(hashed[:30]).decode().lower()


def submission_path(folder: str) -> str:
    """The file of a request, in the launch folder of the first launch."""
    return f"{folder}/{_FILE}"


def joined_submission(
    requests: Sequence[LaunchRequest], staged: Sequence[StagedLaunch], folder: str
) -> JoinedSubmission:
    """The submission of launches, each behind those that it comes after, as they were staged.

    Args:
        folder: the launch folder of the first.
    """
    # The number makes keys unique: cells of a matrix have the name of their run.
    keys = {
        request.ref: platform_name(f"{at}-{request.ref.address.name}")
        for at, request in enumerate(requests, start=1)
    }
    before = {
        request.ref: {keys[ref]: str(ref) for ref in request.record.after if ref in keys}
        for request in requests
    }
    tasks = [
        StagedTask(staged=one, ref=request.ref, key=keys[request.ref], after=[*before[request.ref]])
        for request, one in zip(requests, staged, strict=True)
    ]
    token = joined_token([request.record for request in requests])
    return JoinedSubmission(
        path=submission_path(folder),
        body=joined_request(tasks, token=token),
        tasks={
            request.record.token: {
                "task": keys[request.ref],
                "after": dict[str, Json](before[request.ref]),
            }
            for request in requests
        },
    )


def read_submission(path: str, content: bytes) -> JoinedSubmission | None:
    """The submission that a file has; None where it is damaged."""
    try:
        read: dict[str, Any] = json.loads(content)
        submission = JoinedSubmission(path=path, body=read["body"], tasks=read["tasks"])
        return submission if submission.token else None
    except (ValueError, KeyError, TypeError):
        return None
