"""The questions that newcomers ask have an answer on the page of questions."""

import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "faq.md").read_text()
ANSWERS = dict(re.findall(r"^### (.+)\n\n((?:(?!^#).*\n)+)", PAGE, re.MULTILINE))
# The question as people ask it; the heading that answers it; what the answer has to say.
ASKED = [
    ("What is `type` for an RTX 4090, an A100, an L4, or a box with four H100?",
     "What is `type` for my GPU?", ["RTX_4090", "`type: H100` with `gpus: 4`"]),
    ("What are the defaults of timeout, grace, startup_timeout, progress_timeout, max_parallel?",
     "What are the defaults?", ["startup_timeout", "progress_timeout", "grace", "max_parallel"]),
    ("Which files travel? Does .gitignore count, and what is .sgpuignore?",
     "Which files travel with a run?", [".gitignore", ".sgpuignore"]),
    ("What are code.include, code.exclude and code.link?",
     "What are `code.include`, `code.exclude` and `code.link`?", ["include", "exclude", "link"]),
    ("How do I give values of a sweep to an argparse script? A store_true flag?",
     "How do I give values of a sweep to an argparse script?", ["sweep-a-script.md"]),
    ("How do I compare what 20 cells returned?",
     "How do I compare what 20 runs returned?", ["sgpu results"]),
    ("How do I resume, and is SGPU_OUTPUT_DIR kept over a retry and over a new attempt?",
     "How do I resume? Is the output kept?", ["SGPU_PREVIOUS_OUTPUT_DIR", "retry"]),
    ("How do I run an evaluation after the training?",
     "How do I run an evaluation after the training?", ["after"]),
    ("Where does data go that must not be copied?",
     "Where does my data go?", ["code.link", "how-to/data.md"]),
    ("How do ranks find it from their own copy of the code?",
     "How does a rank find my project folder?", ["SGPU_PROJECT_DIR"]),
    ("Do I commit .sgpu/?", "Do I commit `.sgpu/`?", []),
    ("How does a team share the state, and what if two people apply?",
     "How does a team share the state?", ["state"]),
    ("GitHub Actions: a plan as a comment, an apply of the saved plan?",
     "How do I use it in GitHub Actions?", ["how-to/ci.md"]),
    ("What is the contract of each -o json, and what may change?",
     "Which JSON can my programs rely on?", ["reference/json.md"]),
    ("Several machines of mine by SSH? Slurm?",
     "Can I use several machines of mine by SSH, or Slurm?", ["Ray", "Slurm"]),
    ("conda, docker, or an image on my own box?",
     "Does it use conda, Docker, or an image?", ["conda", "container"]),
    ("A debugger or a shell in a running rank?",
     "Can I use `pdb` in a rank?", ["how-to/debug-a-rank.md"]),
    ("How do I see GPU utilisation and memory, and that it hangs?",
     "How do I see whether it uses the GPUs, or hangs?", ["GPU", "sgpu stacks"]),
    ('"cost unknown": where do prices come from?',
     'What does it cost? Why does the plan say "cost unknown"?', ["no prices"]),
    ("Which SGPU_* variables does a rank have?",
     "Which variables does a rank have?", ["reference/variables.md"]),
    ("What does sgpu write outside of the project, how large, and how do I move it?",
     "What does sgpu write outside of my project?", ["reference/files.md"]),
    ("macOS, Windows: can I at least plan?", "Does it work on macOS or Windows?", ["Mac", "WSL"]),
    ("How do I rename a run without losing its history?",
     "How do I rename a run and keep its history?", ["renamed_from"]),
    ("What do until, on_active, lifecycle, mode and tags do?",
     "What do `until`, `on_active`, `lifecycle`, `mode` and `tags` do?",
     ["until", "on_active", "lifecycle", "mode", "tags"]),
    ("What does include do; can I have runs/*.yaml?",
     "How do I divide a project into files?", ["include"]),
    ("How do I install completion?", "How do I get completion in my shell?", ["sgpu completion"]),
    ("Are error codes listed, with remedies?", "Are all error codes listed?", ["sgpu explain"]),
    ("What does gc keep by default? Is it ever automatic?",
     "Does `gc` run by itself? What does it keep?", ["never", "three"]),
    ("Does preemption reach my ranks, and how long have they to save?",
     "Does preemption reach my ranks, and how long do they have?", ["grace"]),
    ("How do I run one thing without YAML?",
     "How do I run something without a YAML file?", ["sgpu run"]),
    ("Why does `command: echo hi` take ten seconds once MLflow is installed?",
     "Why does a short command take many seconds the first time?", ["MLflow"]),
    ("Which of run.yaml and sgpu.yml is taken when both are there?",
     "Which file is taken if I name none?", ["sgpu.yml", "run.yaml"]),
    ("Under which licence may my company use it?",
     "Under which licence may my company use it?", ["Apache"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("heading", "words"), [pytest.param(where, words, id=asked) for asked, where, words in ASKED]
)
def test_a_question_is_answered(heading: str, words: list[str]) -> None:
    answer = ANSWERS[heading]
    assert answer.strip()
    assert [word for word in words if word not in answer] == []
