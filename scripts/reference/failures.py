"""The page of the kinds of failures, from their tables and the samples of their tests."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.agent.attempt.failure_kinds import GPU_XID, KINDS, FailureKind
from sgpu_decl.agent.attempt.xid_codes import XIDS
from sgpu_decl.views.failure_text import blame_words

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "agent" / "failure_samples.toml"
HEAD = """\
# Failures in words

When a run fails, sgpu looks at how its first rank failed, and names the kinds of failures that are listed here. The report of
`sgpu apply`, `sgpu status`, `sgpu show` and the view of a notebook show the kind in brackets, what happened, with the numbers that
the library printed, and what to do:

```text
train#3 failed after 41 s, exit code 1: [cuda_out_of_memory] rank 0: torch.OutOfMemoryError: CUDA out of memory. ...
cuda_out_of_memory (user error): 22.78 GiB did not fit: GPU 0 has 31.47 GiB, of which 12.73 GiB were free; ...
hint: set `PYTORCH_ALLOC_CONF: expandable_segments:True` in `env.variables`, ...
```

In [JSON](reference/json.md#a-first-cause), `first_cause.kind` is the name, and `first_cause.explanation` has the words. `sgpu explain
cuda_out_of_memory` prints what this page says. A failure that is not listed here has the kind `null`: sgpu does not guess.

- **The exception that ended the rank counts**, with those that it was raised from (`raise ... from`). What a log mentions besides does
  not count: a program that met `out of memory`, went on with a smaller batch, and failed later for another reason has that other reason.
- **The log counts only where there is no exception**: at the end of a rank that a signal ended, and in the last 12 lines of a rank that
  exited with a code. The last failure that is shown there counts.
- **This happens on the node of the rank**, at the end of the attempt, and is the same on this machine, on Ray and on Databricks.

*user error* means that a change of the code, the environment or the configuration helps; *platform fault*, that the same run can
succeed on another machine; *user error or platform fault*, that the text does not say which, or that both can help. The kind does not change
what [`retry`](running.md#failures) starts again: that depends on the class of the failure (`exception`, `oom`, `killed`, ...), which is
known for certain, while words in a log can be printed by anybody. A start on the same GPU would not help after a fault of hardware either.
"""
XID_HEAD = """\
### Xid codes

The codes of [NVIDIA's catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) for Ampere and newer, without
those of video engines and those that it calls unused. sgpu finds them in the log of a rank, and in the log of the kernel, if this user
may read it and the line has the process of the rank.

| code | what it means | fault |
|---:|---|---|
"""


def page() -> str:
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    samples = {}
    for sample in tomllib.loads(SAMPLES.read_text(encoding="utf-8"))["sample"]:
        samples.setdefault(sample["kind"], sample["text"].strip().partition("\n")[0])
    yield HEAD
    for kind in KINDS:
        yield from _section(kind, samples[kind.name])
    yield XID_HEAD + "".join(
        f"| {code} | {meaning} | {blame_words(blame)} |\n"
        for code, (blame, meaning) in XIDS.items()
    )


def _section(kind: FailureKind, sample: str) -> Iterator[str]:
    yield f"## `{kind.name}`\n"
    yield f"{kind.meaning} ({blame_words(kind.blame)})\n"
    yield f"```text\n{sample}\n```\n"
    yield f"- What to do: {kind.next_step}."
    yield f"- Source: <{kind.source}>\n"
    if kind.name == GPU_XID:
        yield "The [codes](#xid-codes) are listed below.\n"
