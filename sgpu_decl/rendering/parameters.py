"""The YAML file of `parameters`, which ranks find by HYPERPARAMETERS_PATH."""

from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json


def render_parameters(parameters: Mapping[str, Json]) -> str:
    """Return the text of the file, with sorted keys.

    Readers of YAML 1.1 (PyYAML) and of 1.2 (ruamel, OmegaConf) find the same values: text that one
    of them would take for a number or for a yes is quoted, and floats have a point (`1.0e-05`).
    """
    import yaml

    class ParametersDumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        # PyYAML loses some line breaks of Unicode (U+0085) where they are not escaped.
        style = '"' if _is_number(value) or not value.isprintable() else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    ParametersDumper.add_representer(str, text)
    return yaml.dump(dict(parameters), Dumper=ParametersDumper, allow_unicode=True)


def _is_number(text: str) -> bool:
    """Whether YAML 1.2 may take a text for a number; 1.1 is PyYAML's own matter."""
    try:
        float(text)
    except ValueError:
        return text.lower().startswith(("0x", "0o"))
    return True
