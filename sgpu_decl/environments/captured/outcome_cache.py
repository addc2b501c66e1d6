"""The outcome of a capture, with a fingerprint of all that it depends on.

A capture of an unchanged environment takes the manifest from here: making one of 60,000 files takes
longer than the stat calls. The fingerprint covers the stat values of every file, and the contents
of `.pth` and RECORD files, which each capture reads.
"""

import hashlib
import marshal
from collections.abc import Iterable
from typing import Any, NamedTuple

from sgpu_decl.content.manifest import File, Manifest, Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.environments.captured.file_walk import WalkResult
from sgpu_decl.environments.captured.interpreter_facts import InterpreterFacts
from sgpu_decl.environments.captured.site_layout import Layout

_PLAIN = 2  # the version of marshal that gives equal bytes for equal values


class CaptureOutcome(NamedTuple):
    """A manifest, its digest and its findings."""

    manifest: Manifest
    digest: str
    findings: tuple[Diagnostic, ...]

    def to_value(self) -> Any:
        """A value for `marshal`. Files are columns, which load much faster than tuples."""
        python, sites, packages, files, bytecode = self.manifest
        findings = [
            (finding.code, str(finding.severity), finding.summary, finding.hint)
            for finding in self.findings
        ]
        columns = _columns(files), _columns(bytecode)
        return tuple(python), sites, packages, *columns, self.digest, findings

    @classmethod
    def from_value(cls, value: Any) -> "CaptureOutcome":
        python, sites, packages, files, bytecode, digest, findings = value
        return cls(
            Manifest(Python(*python), sites, packages, _files(*files), _files(*bytecode)),
            digest,
            tuple(
                Diagnostic(code=code, severity=Severity(severity), summary=summary, hint=hint)
                for code, severity, summary, hint in findings
            ),
        )


def fingerprint(interpreter: InterpreterFacts, layout: Layout, walked: WalkResult) -> bytes:
    """A digest of all that the outcome of a capture depends on."""
    roots = [(root.tree, root.path) for root in layout.roots]
    contents = sorted(layout.new_contents.items())
    own = (repr(interpreter), layout.sites, roots, contents, walked.links)
    entries = [*walked.entries, *walked.caches]
    trees, paths, kinds, hows, facts = zip(*entries, strict=True) if entries else [()] * 5
    columns = ("\0".join(trees), "\0".join(paths), "".join(kinds), "".join(hows), facts)
    return hashlib.sha256(marshal.dumps((own, columns), _PLAIN)).digest()


def _columns(files: Iterable[File]) -> tuple[str, str, tuple[int, ...], str]:
    paths, kinds, sizes, contents = zip(*files, strict=True) if files else [()] * 4
    return "\0".join(paths), "".join(kinds), sizes, "\0".join(contents)


def _files(paths: str, kinds: str, sizes: tuple[int, ...], contents: str) -> tuple[File, ...]:
    return tuple(map(File, paths.split("\0"), kinds, sizes, contents.split("\0")))
