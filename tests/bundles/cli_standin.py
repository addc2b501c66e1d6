"""What the Databricks CLI does with a bundle that has Python, as far as it concerns us: it starts
the program `databricks.bundles.build`, fills variables in, uploads files and makes jobs.

Source: https://github.com/databricks/cli, `bundle/config/mutator/python/python_mutator.go` (the
arguments and the folder), `bundle/phases/initialize.go` (the order, and what is resolved before),
`bundle/deploy/metadata/annotate_jobs.go` (what a deployed job says of itself).
"""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from databricks.bundles import build

__all__ = ["Built", "CliStandin"]

_LOCAL = (".databricks", ".sgpu", "__pycache__")


@dataclass(frozen=True)
class Built:
    """One phase: how the program ended, and the files that it wrote."""

    code: int
    config: dict[str, Any]
    diagnostics: list[dict[str, Any]]
    locations: dict[str, tuple[str, int, int]]
    stderr: str

    @property
    def jobs(self) -> dict[str, Any]:
        return dict(self.config.get("resources", {}).get("jobs", {}))


@dataclass(frozen=True)
class CliStandin:
    """`folder` is the bundle, `temporary` is for files of the program. `apart`: the program runs in
    a process of its own."""

    folder: Path
    temporary: Path
    target: str = "dev"
    user: str = "me@example.com"
    apart: bool = False

    @property
    def file_path(self) -> str:
        return f"/Workspace/Users/{self.user}/.bundle/shop/{self.target}/files"

    def config(self) -> dict[str, Any]:
        """`databricks.yml` as the program is given it: the target is chosen, and defaults of the
        jobs in YAML are there."""
        config: dict[str, Any] = yaml.safe_load((self.folder / "databricks.yml").read_text())
        target = (config.pop("targets", None) or {}).get(self.target) or {}
        config["bundle"]["target"] = self.target
        for pattern in config.pop("include", ()):
            for file in sorted(self.folder.glob(pattern)):
                _join(config, yaml.safe_load(file.read_text()))
        for name, block in (config.get("variables") or {}).items():
            block["value"] = (target.get("variables") or {}).get(name, block.get("default"))
        sync = config.setdefault("sync", {})
        sync.setdefault("paths", ["."])
        development = target.get("mode") == "development"
        for job in ((config.get("resources") or {}).get("jobs") or {}).values():
            job.setdefault("max_concurrent_runs", 4 if development else 1)
            job.setdefault("queue", {"enabled": True})
            if development:
                job["name"] = f"[dev me] {job['name']}"
        return config

    def build(self, phase: str, config: Mapping[str, Any]) -> Built:
        self.temporary.mkdir(exist_ok=True)
        files = {
            name: self.temporary / f"{name}.json"
            for name in ("input", "output", "diagnostics", "locations")
        }
        files["input"].write_text(json.dumps(config))
        for name in ("output", "diagnostics", "locations"):
            files[name].unlink(missing_ok=True)
        options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
        words = ["--phase", phase, *options]
        code, stderr = self._ran(words) if self.apart else (self._called(words), "")
        return Built(
            code=code,
            config=json.loads(files["output"].read_text()) if files["output"].exists() else {},
            diagnostics=_lines(files["diagnostics"]),
            locations={
                one["path"]: (one["file"], one["line"], one["column"])
                for one in _lines(files["locations"])
            },
            stderr=stderr,
        )

    def _ran(self, words: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "databricks.bundles.build", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    def _called(self, words: list[str]) -> int:
        """The same program in this process."""
        argv = ["build.py", *words]
        with patch.object(sys, "argv", argv), chdir(self.folder), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it closes no file that it reads
            return build.main(argv)

    def load(self) -> Built:
        return self.build("load_resources", self.config())

    def jobs(self) -> dict[str, Any]:
        """The jobs after both phases, with variables filled in."""
        loaded = self.load()
        assert (loaded.code, loaded.diagnostics) == (0, []), loaded.stderr
        mutated = self.build("apply_mutators", loaded.config)
        assert (mutated.code, mutated.diagnostics) == (0, []), mutated.stderr
        return {name: self.resolved(job) for name, job in mutated.jobs.items()}

    def resolved(self, job: Any) -> Any:
        text = json.dumps(job)
        for name, value in {
            "workspace.file_path": self.file_path,
            "workspace.current_user.userName": self.user,
            "workspace.current_user.short_name": "me",
        }.items():
            text = text.replace(f"${{{name}}}", value)
        assert "${" not in text
        return json.loads(text)

    def deploy(self, client: Any, jobs: Mapping[str, Any]) -> dict[str, int]:
        """Upload the files, and make the jobs; returns their ids."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and not any(part in _LOCAL for part in path.parts):
                self._upload(client, name, path)
        ids = {}
        for name, job in jobs.items():
            body = {key: value for key, value in job.items() if key != "permissions"}
            body |= {
                "deployment": {
                    "kind": "BUNDLE",
                    "metadata_file_path": self.file_path.replace("/files", "/state/metadata.json"),
                },
                "edit_mode": "UI_LOCKED",
                "format": "MULTI_TASK",
            }
            ids[name] = client.do("POST", "/api/2.2/jobs/create", body=body)["job_id"]
        return ids

    def _upload(self, client: Any, name: str, path: Path) -> None:
        target = f"{self.file_path}/{name}"
        client.do("POST", "/api/2.0/workspace/mkdirs", body={"path": os.path.dirname(target)})
        client.do(
            "POST",
            f"/api/2.0/workspace-files/import-file{target}",
            query={"overwrite": "true"},
            data=path.read_bytes(),
        )


def _join(config: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _join(config.setdefault(key, {}), value)
        else:
            config[key] = value


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
