"""The events of a YAML text, as the parser gives them one after the other."""

from collections.abc import Iterator

import yaml
from yaml import events


def events_of(source: str) -> Iterator[events.Event]:
    """The events of libyaml where PyYAML was built with it, else of PyYAML's own parser."""
    if yaml.__with_libyaml__:
        from yaml._yaml import CParser

        return iter(CParser(source).get_event, None)
    return iter(yaml.SafeLoader(source).get_event, None)
