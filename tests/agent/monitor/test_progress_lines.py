"""What programs print of their progress: lines of tqdm, Lightning, Hugging Face and nanoGPT."""

import io

import pytest
from tqdm import tqdm  # type: ignore[import-untyped]

from sgpu_decl.agent.monitor.progress_lines import LineProgress, declared_total

HUGGING_FACE = (
    "\r 41%|████▏     | 1200/3000 [12:01<18:02,  1.66it/s]"
    "{'loss': 1.83, 'grad_norm': 0.7, 'learning_rate': 2e-05, 'epoch': 0.41}\n"
    "\r 41%|████▏     | 1201/3000 [12:02<18:01,  1.66it/s]"
)
EVALUATION = "\r 50%|█████     | 4/8 [00:02<00:02,  1.99it/s]"
LIGHTNING = "\rEpoch 3:  41%|████      | 120/300 [00:10<00:15, 11.50it/s, v_num=0, train_loss=1.8]"
NANO_GPT = (
    "number of parameters: 10.65M\n"
    "step 250: train loss 2.0975, val loss 2.1123\n"
    "iter 250: loss 2.0894, time 5131.41ms, mfu 7.05%\n"
    "iter 260: loss 2.0642, time 133.33ms, mfu 7.10%\n"
)
TITAN = "[titan] 2026-01-02 - root - INFO - step: 40  loss:  7.9012  memory: 9.03GiB  tps: 8,312\n"


def read(*texts: str, total: int | None = None) -> LineProgress:
    lines = LineProgress(total)
    for text in texts:
        lines.read(text)
    return lines


@pytest.mark.parametrize(
    ("text", "declared", "step", "total", "metrics"),
    [
        (HUGGING_FACE, None, 1201, 3000, {"loss": 1.83, "learning_rate": 2e-05}),
        (HUGGING_FACE + EVALUATION, None, 1201, 3000, {"loss": 1.83}),
        (LIGHTNING, None, 1020, None, {"train_loss": 1.8}),
        (LIGHTNING, 3000, 1020, 3000, {"train_loss": 1.8}),
        (NANO_GPT, None, 260, None, {"loss": 2.0642, "mfu": 7.10}),
        (NANO_GPT, 5000, 260, 5000, {"loss": 2.0642}),
        (TITAN, 1000, 40, 1000, {"loss": 7.9012}),
        ("Step 12/400, loss=0.5\n", None, 12, 400, {"loss": 0.5}),
        ("Iteration 1,200 of 3,000 | loss nan\n", None, 1200, 3000, {}),
    ],
)
def test_lines_of_programs(
    text: str, declared: int | None, step: float, total: float | None, metrics: dict[str, float]
) -> None:
    report = read(text, total=declared).report()
    assert report is not None
    assert (report.step, report.total) == (step, total)
    assert metrics.items() <= report.metrics.items()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:06<00:00,  1.6s/it]",
        "Map:  12%|█▏        | 6000/50000 [00:01<00:09, 4800.10 examples/s]",
        "a step in the right direction\n",
        "\x00\xff garbage %| | 1/ [",
        "100%|" * 10_000,
    ],
)
def test_what_is_no_progress(text: str) -> None:
    assert read(text).report() is None


def test_an_outer_bar_counts_and_an_inner_one_fills_it() -> None:
    out = io.StringIO()
    lines = LineProgress()
    with tqdm(total=10, desc="Epochs", file=out, mininterval=0) as epochs:
        epochs.update(3)
        epochs.start_t -= 30  # it began half a minute ago
        epochs.refresh()
        with tqdm(total=300, desc="Batches", file=out, mininterval=0) as batches:
            batches.update(150)
            batches.refresh()
            lines.read(out.getvalue())
            report = lines.report()
    assert report is not None
    assert (report.step, report.total) == (3.5, 10)


def test_a_bar_with_a_scaled_unit_and_values() -> None:
    out = io.StringIO()
    with tqdm(total=3000, file=out, unit_scale=True, mininterval=0) as bar:
        bar.set_postfix(loss=1.75)
        bar.update(1200)
        bar.refresh()
        report = read(out.getvalue()).report()
    assert report is not None
    assert (report.step, report.total, report.metrics) == (1200, 3000, {"loss": 1.75})


@pytest.mark.parametrize(
    ("args", "text", "total"),
    [
        (["--max_iters=5000", "--lr", "0.1"], "", 5000),
        (["--max-iters", "5_000"], "", 5000),
        ({"max_steps": 300, "lr": 1}, "", 300),
        ([], "torchrun train.py --training.steps 1000", 1000),
        (["--steps=10", "--max_steps=20"], "", None),
        (["--lr=3"], "", None),
        (None, "", None),
    ],
)
def test_the_number_of_steps_that_arguments_name(
    args: object, text: str, total: int | None
) -> None:
    assert declared_total(args, text) == total
