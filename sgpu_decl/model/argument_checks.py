"""Arguments of public calls, checked by the annotations of their parameters.

A text is taken for a path, and any iterable but a text for a sequence. All else that an annotation
does not say is refused by one error. Annotations are read as text: the types that they name may not
be imported yet.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from sgpu_decl.errors import InvalidInput

_T = TypeVar("_T")

_SEQUENCES = frozenset({"Sequence", "Collection", "Iterable", "tuple"})
_NAMED = frozenset({"Address", "AttemptRef"})  # what `str` makes a name of
_SIMPLE: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: _is_number(value, "__index__")),
    "float": ("a number", lambda value: _is_number(value, "__float__")),
    "Path": ("a path", lambda value: isinstance(value, str | Path)),
    "Callable": ("a function", callable),
    "Mapping": ("a dictionary", lambda value: isinstance(value, Mapping)),
    "None": ("None", lambda value: value is None),
}
"""Kinds of values in words, and what is one."""
_PROTOCOLS = frozenset({"Progress"})  # values of any class may be one
_HINTS = {
    "AttemptRef": "pass what `session.runs.find` returned, or a name such as `train#8`",
    "Location": 'write `Location(file="run.yaml")`',
    "Patience": "write `Patience(seconds=60)`",
    "PlanOptions": 'write `PlanOptions(rerun=["train"])`',
    "Prepared": "pass what `Session.plan` returned, as it is",
    "Resource": "pass what `session.jobs.find` returned, or the name of a job",
}


class WrongArgument(InvalidInput, TypeError):
    code = "wrong_parameter"


def checked_calls(cls: type[_T]) -> type[_T]:
    """Decorate a class: the arguments of its public methods are checked."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, classmethod):
            setattr(cls, name, classmethod(checked_call(value.__func__)))
        elif inspect.isfunction(value):
            setattr(cls, name, checked_call(value))
    return cls


def checked_fields(cls: type[_T]) -> type[_T]:
    """Decorate a dataclass with keyword arguments alone: the values of its fields are checked."""
    made: Any = cls
    plain, annotations = made.__init__, made.__annotations__

    @wraps(plain)
    def checked(self: object, *unnamed: object, **values: object) -> None:
        if unnamed:
            message = f"`{cls.__name__}` takes its values by name"
            raise WrongArgument(message, hint=_HINTS.get(cls.__name__))
        for name in values.keys() & annotations.keys():
            values[name] = _taken(name, values[name], _text_of(annotations[name]))
        plain(self, **values)

    made.__init__ = checked
    return cls


def checked_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function: its arguments are checked."""

    @wraps(call)
    def checked(*args: object, **options: object) -> object:
        signature, forms = _signature(call)
        try:
            bound = signature.bind(*args, **options)
        except TypeError:  # a parameter is missing or unknown, and Python says which
            return call(*args, **options)
        for name, value in bound.arguments.items():
            if (form := forms.get(name)) is None:
                continue
            several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            bound.arguments[name] = (
                tuple(_taken(name, one, form) for one in value)
                if several
                else _taken(name, value, form)
            )
        return call(*bound.args, **bound.kwargs)

    return checked


@cache
def _signature(call: Callable[..., object]) -> tuple[inspect.Signature, dict[str, str]]:
    signature = inspect.signature(call)
    forms = {
        name: _text_of(one.annotation)
        for name, one in signature.parameters.items()
        if one.annotation is not inspect.Parameter.empty
        and one.kind is not inspect.Parameter.VAR_KEYWORD
    }
    return signature, forms


def _text_of(annotation: object) -> str:
    """An annotation without the modules of its types."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.sub(r"(?:\w+\.)+(?=\w)", "", text)


def _taken(name: str, value: object, form: str) -> object:
    """A value as the call takes it.

    Raises:
        WrongArgument: the annotation says something else.
    """
    forms = _split(form, "|")
    for one in forms:
        head, _, inner = one.partition("[")
        if head in _SEQUENCES:
            if inner.startswith("tuple[") and isinstance(value, Mapping):
                value = value.items()
            if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
                return _items(name, value, inner.removesuffix("]"))
        elif _fits(value, head):
            return Path(value) if "Path" in forms and isinstance(value, str) else value
    if "str" in forms and type(value).__name__ in _NAMED:
        return str(value)
    raise _wrong(name, value, forms)


def _items(name: str, values: Iterable[object], inner: str) -> tuple[object, ...]:
    """The items of a sequence; one of pairs may be given as a dictionary."""
    kinds = _split(inner, ",")
    listed = tuple(values)
    if len(kinds) == 1 or kinds[1] == "...":
        return tuple(_taken(name, item, kinds[0]) for item in listed)
    if len(listed) != len(kinds):
        raise _wrong(name, listed, (f"tuple[{inner}]",))
    return tuple(_taken(name, item, kind) for item, kind in zip(listed, kinds, strict=True))


def _fits(value: object, head: str) -> bool:
    if head in _SIMPLE:
        return _SIMPLE[head][1](value)
    if head in _PROTOCOLS:
        return type(value).__module__ != "builtins"
    return not head[:1].isupper() or any(kind.__name__ == head for kind in type(value).__mro__)


def _is_number(value: object, method: str) -> bool:
    return hasattr(value, method) and not isinstance(value, bool | str) and value == value


def _split(text: str, sign: str) -> tuple[str, ...]:
    """The parts between signs that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts)


def _wrong(name: str, value: object, forms: tuple[str, ...]) -> WrongArgument:
    words = " or ".join(dict.fromkeys(map(_in_words, forms)))
    is_plain = value is None or isinstance(value, str | int | float)
    told = f"`{value!r}`" if is_plain else f"a `{type(value).__name__}`"
    hints = (_hint(name, value, form) for form in forms)
    return WrongArgument(
        f"`{name}` must be {words}, not {told}", hint=next(filter(None, hints), None)
    )


def _hint(name: str, value: object, form: str) -> str | None:
    """What to write for a value of a form."""
    head, _, inner = form.partition("[")
    if head not in _SEQUENCES:
        return _HINTS.get(head)
    if inner.startswith("tuple["):
        return f'write `{name}={{"NAME": "TEXT"}}`'
    kinds = _split(_split(inner.removesuffix("]"), ",")[0], "|")
    if any(_fits(value, kind) for kind in kinds):
        return (
            f"write `{name}=[{value!r}]`" if isinstance(value, str | int) else f"write `{name}=[…]`"
        )
    return next((_HINTS[kind] for kind in kinds if kind in _HINTS), f"write `{name}=[…]`")


def _in_words(form: str) -> str:
    head, _, inner = form.partition("[")
    if head not in _SEQUENCES:
        return _SIMPLE[head][0] if head in _SIMPLE else f"a `{head}`"
    first, *others = _split(inner.removesuffix("]"), ",")
    if others not in ([], ["..."]):
        return "a pair of " + " and ".join(map(_in_words, (first, *others)))
    kinds = (_in_words(kind).removeprefix("a ") for kind in _split(first, "|"))
    return f"a list of {' or '.join(kinds)}"
