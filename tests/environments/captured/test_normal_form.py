import importlib.util
import struct

import pytest

from sgpu_decl.environments.captured.normal_form import bytecode, is_script, record, script

MAGIC = importlib.util.MAGIC_NUMBER
SOURCE = b"x = 1\n"
KEY = importlib.util.source_hash(SOURCE)
BODY = b"code"
LONG = b"#!/bin/sh\n'''exec' /a/very/long/path/bin/python3.11 \"$0\" \"$@\"\n' '''\n"


@pytest.mark.parametrize(
    "head",
    [
        b"#!/usr/bin/python\n",
        b"#!/opt/env/bin/python3.11 -E -s\n",
        b"#!/usr/bin/env python3\n",
        b"#!python\n",
        b"#!/home/me and you/bin/python\r\n",
        LONG,
    ],
)
def test_scripts_of_python_begin_alike(head: bytes) -> None:
    assert is_script(head)
    assert script(head + b"import sys\n") == b"#!python\nimport sys\n"


@pytest.mark.parametrize("text", [b"#!/bin/bash\npython\n", b"\x7fELF", b"", b"import python\n"])
def test_other_programs_are_left_as_they_are(text: bytes) -> None:
    assert not is_script(text)
    assert script(text) == text


def test_a_record_lists_what_any_installer_would() -> None:
    one = (
        b"../../../bin/alpha,sha256=abc,120\nalpha/__init__.py,sha256=def,3\n"
        b"alpha/__pycache__/__init__.cpython-311.pyc,,\nalpha-1.0.dist-info/INSTALLER,sha256=x,4\n"
        b"alpha-1.0.dist-info/RECORD,,\n"
    )
    two = (
        b"alpha-1.0.dist-info/RECORD,,\r\nalpha-1.0.dist-info/REQUESTED,sha256=y,0\r\n"
        b"alpha-1.0.dist-info/direct_url.json,sha256=z,9\r\nalpha/__init__.py,sha256=def,3\r\n"
        b"../../../bin/alpha,sha256=other,99\r\n/abs/__pycache__/x.pyc,,\r\n"
    )
    assert record(one) == record(two)
    assert record(one).splitlines()[0] == b"../../../bin/alpha,,"
    assert b"alpha/__init__.py,sha256=def,3" in record(one)


def _pyc(flags: int, eight: bytes) -> bytes:
    return MAGIC + struct.pack("<I", flags) + eight + BODY


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        (_pyc(0, struct.pack("<II", 1000, 6)), True),
        (_pyc(0, struct.pack("<II", 1001, 6)), False),
        (_pyc(0, struct.pack("<II", 1000, 7)), False),
        (_pyc(1, KEY), True),
        (_pyc(3, KEY), True),
        (_pyc(3, bytes(8)), False),
        (_pyc(9, KEY), False),
        (b"\0\0\r\n" + _pyc(1, KEY)[4:], False),
        (_pyc(1, KEY)[:16], False),
        (b"", False),
    ],
)
def test_bytecode_is_taken_where_it_is_that_of_its_source(data: bytes, valid: bool) -> None:
    assert bytecode(data, MAGIC, SOURCE, (6, 1000)) == (_pyc(1, KEY) if valid else None)
