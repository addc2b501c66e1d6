"""The graph of a project in the language of Mermaid, which draws it, and as JSON."""

from collections.abc import Mapping
from typing import cast

from sgpu_decl.model.address import Kind
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planner.project_graph import GraphNode, ProjectGraph

_MERMAID_SHAPES: Mapping[Kind, tuple[str, str]] = {
    Kind.ENVIRONMENT: ("[(", ")]"),
    Kind.RUN: ("[", "]"),
    Kind.JOB: ("([", "])"),
}


def graph_mermaid(graph: ProjectGraph) -> str:
    """A flowchart of Mermaid, which GitHub and GitLab draw in Markdown. Arrows lead to what is
    needed. https://mermaid.js.org/syntax/flowchart.html"""
    ids = {node.address: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        opening, closing = _MERMAID_SHAPES[node.address.kind]
        label = "<br>".join(map(_mermaid_text, _label(node)))
        lines.append(f'  {ids[node.address]}{opening}"{label}"{closing}')
    lines += [
        f"  {ids[edge.source]} -->|{edge.relation}| {ids[edge.needed]}" for edge in graph.edges
    ]
    return "\n".join(lines)


def graph_json(graph: ProjectGraph) -> dict[str, Json]:
    return {
        "nodes": [
            {"kind": node.address.kind, **cast("dict[str, Json]", to_json(node))}
            for node in graph.nodes
        ],
        "edges": to_json(graph.edges),
    }


def _label(node: GraphNode) -> list[str]:
    """The lines that a node shows: its address, its cells, and what a plan would do."""
    lines = [str(node.address)]
    if node.cells > 1:
        lines.append(f"{node.cells:,} runs")
    for action, count in node.actions.items():
        lines.append(f"{count:,} {action}" if node.cells > 1 else str(action))
    return lines


def _mermaid_text(text: str) -> str:
    """Text inside of quotes: a character that ends them, or is markup, is written as its number."""
    return "".join(f"#{ord(one)};" if one in '"#<>&`\\' else one for one in text)
