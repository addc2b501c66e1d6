"""The C sides of `signal` and `json` do what the modules around them do."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgpu_decl.agent
from sgpu_decl.agent.system.fast_stdlib import dumps, loads, signal_name

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_values_are_written_and_read_as_by_json(value: object) -> None:
    text = dumps(value)
    assert text == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert loads(text) == value
    assert loads(f" {json.dumps(value, indent=1)}\n") == value


@given(st.text() | st.binary())
def test_what_is_no_json_is_refused_as_by_json(text: str | bytes) -> None:
    try:
        expected = json.loads(text.decode() if isinstance(text, bytes) else text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  as `json` says it: of many kinds
            loads(text)
    else:
        assert loads(text) == expected or expected != expected  # NaN


def test_what_is_no_json_is_refused_where_json_was_never_loaded() -> None:
    code = (
        "import sys, types\n"
        "package = types.ModuleType('sgpu_decl')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['sgpu_decl'] = package\n"
        "from sgpu_decl.agent.system.fast_stdlib import loads\n"
        "for text in ('', '{', '1 2', '[1,', '\"', 'nul'):\n"
        "    for name in [name for name in sys.modules if name.startswith('json')]:\n"
        "        del sys.modules[name]\n"
        "    try: loads(text)\n"
        "    except ValueError: print('refused')\n"
    )
    folder = Path(sgpu_decl.agent.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "refused\n" * 6


def test_the_agent_starts_without_slow_modules_of_the_library() -> None:
    code = (
        "import sys, types\n"
        "package = types.ModuleType('sgpu_decl')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['sgpu_decl'] = package\n"
        "import sgpu_decl.agent.supervision.guardian\n"
        "import sgpu_decl.agent.supervision.supervisor\n"
        "print(*sys.modules)\n"
    )
    folder = Path(sgpu_decl.agent.__file__).parents[1]
    command = [sys.executable, "-I", "-S", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    slow = {"collections", "contextlib", "enum", "functools", "json", "re", "socket", "subprocess"}
    assert "sgpu_decl.agent.supervision.supervisor" in done.stdout
    assert not slow & set(done.stdout.split())


def test_signals_have_their_names() -> None:
    for number in signal.Signals:
        assert signal_name(int(number)) == number.name
    assert signal_name(99) == "SIG99"


def test_the_agent_starts_without_enum_and_re(make_attempt: Callable[..., Any]) -> None:
    attempt = make_attempt("pass", world_size=1)
    agent = Path(sgpu_decl.agent.__file__).with_name("__main__.py")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-I", "-S", str(agent), str(attempt.folder)],
        input="{}",
        capture_output=True,
        text=True,
        check=True,
    )
    assert attempt.wait()["state"] == "succeeded"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "sgpu_decl.agent.supervision.supervisor" in loaded
    assert not loaded & {"enum", "re", "json", "subprocess", "signal"}
