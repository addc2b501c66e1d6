"""Files of `--var-file`: a mapping of variables and their values, as YAML or JSON."""

from collections.abc import Sequence
from dataclasses import replace

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.text.yaml_nodes import Mapping
from sgpu_decl.text.yaml_reader import load


def read_values(
    files: Sequence[tuple[bytes, str]],
) -> tuple[tuple[Mapping, ...], tuple[Diagnostic, ...]]:
    """The mappings in files, which are contents with names, and what is wrong with the others."""
    values: list[Mapping] = []
    findings: list[Diagnostic] = []
    for content, shown in files:
        document, new_findings = load(content, shown)
        findings += (_of_values(one) for one in new_findings)
        if document is not None:
            values.append(document.root)
    return tuple(values), tuple(findings)


def _of_values(finding: Diagnostic) -> Diagnostic:
    if finding.code not in ("not_a_mapping", "empty_file"):
        return finding
    return replace(finding, hint="write a line `NAME: VALUE` for each variable")
