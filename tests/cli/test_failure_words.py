"""A failure of a known kind is named in the report of `apply`, in `status` and in `show`."""

from tests.cli.conftest import Shell

RUN = """\
name: train
gpus: 1
type: CPU
mlflow: {enabled: false}
grace: 500ms
"""
FULL_GPU = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    y = model(x)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total \
capacity of 31.47 GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has \
18.73 GiB memory in use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is \
reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
"""


def test_a_known_failure_is_named_everywhere(sgpu: Shell) -> None:
    sgpu.write("oom.txt", FULL_GPU)
    sgpu.write("run.yaml", f"{RUN}command: cat oom.txt >&2; exit 1\n")
    report = sgpu.exits(5, "apply", "-y").err

    said = "22.78 GiB did not fit: GPU 0 has 31.47 GiB, of which 12.73 GiB were free; PyTorch used "
    assert ": [cuda_out_of_memory] rank 0: torch.OutOfMemoryError: CUDA out of memory." in report
    assert f"\ncuda_out_of_memory (user error): {said}" in report
    assert "\nhint: set `PYTORCH_ALLOC_CONF: expandable_segments:True` in `env.variables`" in report
    assert "  [cuda_out_of_memory] rank 0: torch.OutOfMemoryError: " in sgpu.done("status").out
    shown = sgpu.done("show", "train").out
    assert f"\n\ncuda_out_of_memory (user error): {said}" in shown
    markdown = sgpu.done("show", "train", "-o", "markdown").out
    assert f"**`cuda_out_of_memory`** (user error): {said}" in markdown

    (run,) = sgpu.data("status")["runs"]
    cause = run["first_cause"]
    assert (cause["class"], cause["kind"]) == ("exception", "cuda_out_of_memory")
    assert cause["explanation"].keys() == {"blame", "meaning", "next_step", "source"}
    assert cause["explanation"]["blame"] == "error"
    assert sgpu.data("show", "train")["first_cause"] == cause
    explained = sgpu.data("explain", cause["kind"])
    assert explained["source"] == cause["explanation"]["source"]


def test_an_unknown_failure_has_the_kind_null_and_a_success_has_no_cause(sgpu: Shell) -> None:
    sgpu.write("run.yaml", f"{RUN}command: 'echo CUDA out of memory, went on; exit 7'\n")
    report = sgpu.exits(5, "apply", "-y").err
    assert "train#1 failed" in report
    assert "[" not in report.partition("train#1 failed")[2].partition("\n")[0]
    (run,) = sgpu.data("status")["runs"]
    assert run["first_cause"]["kind"] is None
    assert "explanation" not in run["first_cause"]

    sgpu.write("run.yaml", f"{RUN}command: 'echo CUDA out of memory, went on'\n")
    sgpu.done("apply", "-y")
    (run,) = sgpu.data("status")["runs"]
    assert run["first_cause"] is None
