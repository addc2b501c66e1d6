import json

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import InvalidInput, Locked
from sgpu_decl.views.envelope import enveloped


def test_data_alone() -> None:
    assert json.loads(enveloped({"runs": []})) == {"v": 1, "data": {"runs": []}}


def test_data_that_is_null_is_still_data() -> None:
    assert json.loads(enveloped()) == {"v": 1, "data": None}


def test_error_alone_with_its_diagnostics() -> None:
    found = Diagnostic(
        code="duplicate_key",
        summary="key `gpus` twice",
        place=Place("run.yaml", 3, 1),
        hint="remove one",
        related=(Related(place=Place("run.yaml", 2, 1), note="first here"),),
    )
    answer = json.loads(enveloped(error=InvalidInput("1 error", diagnostics=(found,))))
    assert answer == {
        "v": 1,
        "error": {
            "code": "invalid_input",
            "message": "1 error",
            "hint": None,
            "retryable": False,
            "diagnostics": [
                {
                    "code": "duplicate_key",
                    "severity": "error",
                    "summary": "key `gpus` twice",
                    "file": "run.yaml",
                    "line": 3,
                    "column": 1,
                    "hint": "remove one",
                    "related": [{"file": "run.yaml", "line": 2, "column": 1, "note": "first here"}],
                }
            ],
        },
    }


def test_both_where_work_was_done_and_failed() -> None:
    answer = json.loads(enveloped({"runs": []}, error=Locked("held", hint="wait")))
    assert set(answer) == {"v", "data", "error"}
    assert answer["error"]["retryable"] is True


def test_a_file_name_that_is_no_utf8_survives() -> None:
    text = enveloped({"path": b"\xff.py".decode("utf-8", "surrogateescape")})
    assert text.isascii()
    assert json.loads(text)["data"]["path"] == "\udcff.py"
