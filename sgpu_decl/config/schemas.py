"""The published JSON Schemas: of what users write, from the models; of what sgpu writes."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from sgpu_decl.config.backend import BackendOptions, known_options
from sgpu_decl.config.field_help import (
    TARGET_FIELDS,
    TARGETS,
    VARIABLE_FIELDS,
    VARIABLES,
    FieldHelp,
    describe,
)
from sgpu_decl.config.output_schemas import events_schema, plan_schema, state_schema, stream_schema
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.target_rules import OF_RULES
from sgpu_decl.config.text_types import Textual
from sgpu_decl.model.target import BASE, TARGET_NAME
from sgpu_decl.text.lookups import KINDS
from sgpu_decl.text.variable_types import TYPES

__all__ = ["FieldHelp", "describe", "documents", "text_of", "write"]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_ABOUT = ("description", "default")
# A value that is one reference takes the type of what it refers to.
_REFERENCE: Schema = {
    "type": "string",
    "pattern": r"\$\{",
    "description": "A reference, such as `${var.gpus}`.",
}
_GPUS_IF_NOT_A_DRIVER: Schema = {
    "if": {
        "properties": {"gpus": {"const": 0, "description": "Of a driver."}},
        "required": ["gpus"],
    },
    "then": {
        "properties": {"ray": {"type": "object", "description": "Which cluster."}},
        "required": ["ray"],
    },
}
_VARIABLE: Schema = {
    "description": "A variable: its default, or a mapping with a default. A variable without a "
    "default needs `--var`.",
    "anyOf": [
        {"type": ["string", "number", "boolean", "array", "null"]},
        {
            "type": "object",
            "properties": {
                "type": {
                    "enum": [*TYPES, None],
                    "description": VARIABLE_FIELDS["type"],
                },
                "default": {"description": VARIABLE_FIELDS["default"]},
                "values": {
                    "type": ["array", "null"],
                    "items": {"type": ["string", "number", "boolean"]},
                    "description": VARIABLE_FIELDS["values"],
                },
                "description": {
                    "type": ["string", "number", "boolean"],
                    "description": VARIABLE_FIELDS["description"],
                },
                "lookup": {
                    "type": ["object", "null"],
                    "properties": {
                        kind: {"type": "string", "description": f"A name: {words}."}
                        for kind, words in KINDS.items()
                    },
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                    "description": VARIABLE_FIELDS["lookup"],
                },
            },
            "additionalProperties": False,
        },
    ],
}


class _Generator(GenerateJsonSchema):
    """Amounts are shown as users write them, and fields that have no default show none."""

    def encode_default(self, dft: Any) -> Any:
        return str(dft) if isinstance(dft, Textual) else super().encode_default(dft)


def documents() -> dict[str, Schema]:
    """Every published schema by its name: run, project, plan, state, events, stream."""
    return {
        "run": _of_file(RunConfig, "run", "A run file"),
        "project": _of_file(ProjectFile, "project", "A project file"),
        "plan": _headed("plan", "A plan", plan_schema()),
        "state": _headed("state", "A state, as `sgpu state pull` prints it", state_schema()),
        "events": _headed("events", "A line of an attempt's events.log", events_schema()),
        "stream": _headed("stream", "A line of a file of `--json-into`", stream_schema()),
    }


def text_of(schema: Schema) -> str:
    """A schema as its file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> tuple[Path, ...]:
    """Write every schema into `folder`.

    Returns:
        The files, whether they changed or not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, schema in documents().items():
        path = folder / f"{name}.v1.schema.json"
        path.write_text(text_of(schema), encoding="utf-8")
        files.append(path)
    return tuple(files)


def _headed(name: str, title: str, body: Schema) -> Schema:
    return {"$schema": DRAFT, "$id": f"urn:sgpu:schema:{name}.v1", "title": title, **body}


def _of_file(model: type[BaseModel], name: str, title: str) -> Schema:
    """The schema of a file whose root is `model`, with the blocks that every file may have and
    `targets` of partial roots."""
    _, generated = models_json_schema(
        [(item, "validation") for item in (model, *known_options().values())],
        ref_template="#/$defs/{model}",
        title=title,
        schema_generator=_Generator,
    )
    defs: Schema = generated["$defs"]
    _as_users_write({"$defs": defs})
    root = defs.pop(model.__name__)
    _one_of_the_kinds(defs)
    defs["Reference"] = _REFERENCE
    run = root if model is RunConfig else defs["ProjectRun"]
    run["properties"]["ray"]["anyOf"].insert(0, {"type": "boolean"})
    defs["OnFinish"]["properties"]["webhook"]["anyOf"].insert(0, {"type": "string"})
    if model is not RunConfig:  # there, the key is the name, and environments have names
        for block in ("Env", "FileArrival", "Recipient", "TaskNotebook"):
            _by_name(defs, block, {"type": "string"})
        _by_name(defs, "TableUpdate", {"type": "array", "items": {"type": "string"}})
        del run["properties"]["name"]
        run["required"] = [field for field in run["required"] if field != "name"]
    partial = _partial(root)
    if model is not RunConfig:
        defs["PartialRun"] = _partial(run)
        runs = partial["properties"]["runs"] = dict(partial["properties"]["runs"])
        runs["additionalProperties"] = {"$ref": "#/$defs/PartialRun"}
        runs.pop("anyOf", None)
        defs["Functions"] = _partial(defs["Functions"])  # nothing in it is required anyway
        defs["PartialJob"] = _partial(defs["Job"])
        for kind in ("run", "job"):
            described = defs["Defaults"]["properties"][kind]["description"]
            part = {"$ref": f"#/$defs/Partial{kind.capitalize()}"}
            defs["Defaults"]["properties"][kind] = {
                "description": described,
                "anyOf": [part, {"type": "null"}],
            }
    if model is RunConfig:
        root |= _GPUS_IF_NOT_A_DRIVER
    variables = {
        "type": "object",
        "description": VARIABLES,
        "additionalProperties": _VARIABLE,
    }
    partial["properties"]["variables"] = variables
    defs["Target"] = {
        **partial,
        "description": "The fields that differ in one target.",
        "title": "Target",
    }
    if model is not RunConfig:
        partial["properties"]["default"] = {
            "type": ["boolean", "null"],
            "description": TARGET_FIELDS["default"],
        }
        partial["properties"]["extends"] = {
            "type": ["string", "null"],
            "description": TARGET_FIELDS["extends"],
        }
        for key in OF_RULES:
            partial["properties"][key] = {
                "type": ["string", "null"],
                "description": TARGET_FIELDS[key],
            }
        partial["properties"]["requires"]["enum"] = ["reviewed", None]
    root["properties"]["variables"] = variables
    root["properties"]["targets"] = {
        "type": "object",
        "description": TARGETS,
        "propertyNames": {"pattern": f"^{TARGET_NAME}$", "not": {"const": BASE}},
        "additionalProperties": {"anyOf": [{"$ref": "#/$defs/Target"}, {"type": "null"}]},
    }
    root.pop("title", None)
    return _headed(name, title, {**root, "$defs": dict(sorted(defs.items()))})


def _partial(schema: Schema) -> Schema:
    """Nothing required, and `null` takes a value away."""
    properties = {name: _or_null(below) for name, below in schema["properties"].items()}
    kept = {key: value for key, value in schema.items() if key != "required"}
    return {**kept, "properties": properties}


def _or_null(schema: Schema) -> Schema:
    if "anyOf" in schema:
        if {"type": "null"} in schema["anyOf"]:
            return dict(schema)
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    shared: Schema = {key: schema[key] for key in _ABOUT if key in schema}
    bare = {key: value for key, value in schema.items() if key not in shared}
    return {**shared, "anyOf": [bare, {"type": "null"}]}


def _by_name(defs: Schema, block: str, *short: Schema) -> None:
    """A name in the place of a block is short for it: `backend: local`."""
    whole = defs[f"{block}Block"] = defs.pop(block)
    forms = [*short, {"$ref": f"#/$defs/{block}Block"}]
    defs[block] = {"description": whole["description"], "anyOf": forms}


def _one_of_the_kinds(defs: Schema) -> None:
    """A `backend` block has the fields of its kind; the name of a kind is short for it. A part of a
    block, in a target, need not name its kind again."""
    described = defs[BackendOptions.__name__]["description"].partition("\n")[0]
    for kind, options in known_options().items():
        block = defs[options.__name__]
        block["properties"]["kind"] = {
            "description": block["properties"]["kind"]["description"],
            "anyOf": [{"const": kind}, {"$ref": "#/$defs/Reference"}],
        }
    defs[BackendOptions.__name__] = {
        "description": described,
        "anyOf": [
            {"type": "string", "enum": list(known_options())},
            {"$ref": "#/$defs/Reference"},
            *({"$ref": f"#/$defs/{option.__name__}"} for option in known_options().values()),
        ],
    }


def _as_users_write(node: Any) -> None:
    """Turn the schemas of fields into what a file may hold: text as any scalar, since it is taken
    as written, and a reference in the place of any other value."""
    if isinstance(node, list):
        for item in node:
            _as_users_write(item)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "properties" or key == "$defs":
            for below in value.values():
                _as_users_write(below)
        elif key in ("anyOf", "oneOf", "items", "additionalProperties", "prefixItems"):
            _as_users_write(value)
    for name, below in node.get("properties", {}).items():
        node["properties"][name] = _written(below)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict) and node[key]:
            node[key] = _written(node[key])
    node.pop("title", None)


def _written(schema: Schema) -> Schema:
    schema = {key: value for key, value in schema.items() if key != "title"}
    options = schema.pop("oneOf", None) or schema.pop("anyOf", None)
    shared: Schema = {key: schema.pop(key) for key in _ABOUT if key in schema}
    loose = [_loose(one) for one in (options or [schema])]
    if any(_takes_text(one) for one in loose):
        return {**shared, **loose[0]} if len(loose) == 1 else {**shared, "anyOf": loose}
    return {**shared, "anyOf": [*loose, {"$ref": "#/$defs/Reference"}]}


def _loose(schema: Schema) -> Schema:
    """Unrestricted text may look like a number or a boolean in YAML."""
    if schema == {"type": "string"}:
        return {"type": ["string", "number", "boolean"]}
    return schema


def _takes_text(schema: Schema) -> bool:
    """Whether a reference fits already."""
    if (
        not schema
        or schema.get("$ref") == "#/$defs/Reference"
        or "JsonValue" in schema.get("$ref", "")
    ):
        return True
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if "string" not in kinds or "enum" in schema or "const" in schema:
        return False
    return r"\$\{" in schema.get("pattern", r"\$\{")
