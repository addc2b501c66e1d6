import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from sgpu_decl.code import file_digests
from sgpu_decl.code.file_digests import HashCache


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was not touched for long: the clock stands an hour later."""
    path = tmp_path / "file"
    path.write_text("content")
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    return path


def _digest(cache: HashCache, path: Path) -> str:
    return cache.digest(str(path), os.lstat(path))


def test_an_unchanged_file_is_read_once_also_by_the_next_command(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "cache/hashes.json"
    cache = HashCache.open(where)
    expected = hashlib.sha256(b"content").hexdigest()
    assert _digest(cache, old) == expected
    cache.save()
    monkeypatch.setattr(file_digests, "digest_file", lambda path: pytest.fail(f"{path} was read"))
    assert _digest(HashCache.open(where), old) == expected


def test_a_file_of_the_same_size_and_time_but_other_content_is_noticed(
    old: Path, tmp_path: Path
) -> None:
    cache = HashCache.open(tmp_path / "hashes.json")
    before, facts = _digest(cache, old), os.lstat(old)
    old.write_text("CONTENT")
    os.utime(old, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert _digest(cache, old) != before


def test_a_file_that_just_changed_is_never_remembered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    where = tmp_path / "hashes.json"
    cache = HashCache.open(where)
    _digest(cache, path)
    cache.save()
    assert not where.exists()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"\xff", b'{"version": 99}', b'{"version": 1, "files": [1]}']
)
def test_a_damaged_cache_is_an_empty_one_and_is_written_anew(
    old: Path, tmp_path: Path, damage: bytes
) -> None:
    where = tmp_path / "hashes.json"
    where.write_bytes(damage)
    cache = HashCache.open(where)
    assert _digest(cache, old) == hashlib.sha256(b"content").hexdigest()
    cache.save()
    assert json.loads(where.read_text())["version"] == 1


def test_a_value_that_is_no_digest_is_not_believed(old: Path, tmp_path: Path) -> None:
    where = tmp_path / "hashes.json"
    cache = HashCache.open(where)
    _digest(cache, old)
    cache.save()
    stored = json.loads(where.read_text())
    where.write_text(json.dumps({**stored, "files": dict.fromkeys(stored["files"], 7)}))
    assert _digest(HashCache.open(where), old) == hashlib.sha256(b"content").hexdigest()


def test_a_cache_that_cannot_be_written_costs_speed_only(old: Path, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("")
    cache = HashCache.open(tmp_path / "blocked/hashes.json")
    assert _digest(cache, old) == hashlib.sha256(b"content").hexdigest()
    cache.save()
    assert (tmp_path / "blocked").read_text() == ""


def test_a_cache_that_grew_too_long_keeps_what_was_just_used(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_digests, "LIMIT", 1)
    where = tmp_path / "hashes.json"
    where.write_text(json.dumps({"version": 1, "files": {"gone": "0" * 64}}))
    cache = HashCache.open(where)
    _digest(cache, old)
    cache.save()
    (kept,) = json.loads(where.read_text())["files"]
    assert kept.startswith(str(old))
