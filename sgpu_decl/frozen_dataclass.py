"""`dataclass` for frozen values with slots, made in a quarter of the time.

`dataclasses.dataclass` writes and compiles the source of six methods for each class, which is half
of the time that a command takes to start. Here one is compiled, `__init__`; the others are closures
over the fields. The class is a dataclass in all other ways: `fields`, `replace`, `==`, `<`, `hash`,
`repr`, `copy` and `pickle` give the same. `dataclasses` itself makes the classes that are not
frozen, have no slots, inherit from another dataclass, bring `__eq__` or a method for pickle, or use
`__post_init__`, `InitVar` or `field(init=False)`.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["FLAT", "KEY", "PRIVATE", "SOMETIMES", "UNWRITTEN", "dataclass", "written_as"]

# What the metadata of a field says of its JSON, which `model/codec.py` writes.
FLAT = {"codec": "flat"}
UNWRITTEN = {"codec": "unwritten"}
PRIVATE = {"codec": "private"}
SOMETIMES = {"codec": "sometimes"}
KEY = "key"

_T = TypeVar("_T")
_Fields = tuple["dataclasses.Field[Any]", ...]


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(**options: bool) -> Callable[[type[_T]], type[_T]]:
        """Return the decorator; the options are those of `dataclasses.dataclass`."""
        frozen = options.get("frozen") and options.get("slots")
        if not frozen or options.keys() - {"frozen", "slots", "kw_only", "order"}:
            return dataclasses.dataclass(**options)

        def decorate(cls: type[_T]) -> type[_T]:
            if _is_simple(cls):
                made = _frozen(cls, kw_only=options.get("kw_only", False))
                return _ordered(made) if options.get("order") else made
            return dataclasses.dataclass(**options)(cls)

        return decorate


def written_as(key: str) -> dict[str, str]:
    """The metadata of a field that has another name in JSON than in Python."""
    return {KEY: key}


_OWN_METHODS = frozenset({"__post_init__", "__eq__", "__getstate__", "__setstate__"})


def _is_simple(cls: type) -> bool:
    """Whether a class uses nothing that the methods here do not know."""
    values = cls.__dict__.values()
    return (
        _OWN_METHODS.isdisjoint(cls.__dict__)
        and not any(dataclasses.is_dataclass(base) for base in cls.__bases__)
        and all(value.init for value in values if isinstance(value, dataclasses.Field))
        and not any("InitVar" in str(kind) for kind in getattr(cls, "__annotations__", {}).values())
    )


def _frozen(cls: type[_T], *, kw_only: bool) -> type[_T]:
    own = frozenset(cls.__dict__)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else it is made of the signature
    made: Any = dataclasses.dataclass(
        cls, init=False, repr=False, eq=False, slots=True, kw_only=kw_only
    )
    made.__dataclass_params__.frozen = True
    fields = dataclasses.fields(made)
    compared = _getter(item.name for item in fields if item.compare)
    hashed = _getter(
        item.name for item in fields if (item.compare if item.hash is None else item.hash)
    )
    shown = tuple(item.name for item in fields if item.repr)

    def as_text(self: object) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({inside})"

    def equals(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    methods = {
        "__init__": _init_of(made, fields),
        "__repr__": as_text,
        "__eq__": equals,
        "__hash__": lambda self: hash(hashed(self)),
        "__getstate__": _state,
        "__setstate__": _set_state,
        "__setattr__": _refuse_assignment,
        "__delattr__": _refuse_deletion,
    }
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _ordered(made: Any) -> Any:
    made.__dataclass_params__.order = True
    compared = _getter(item.name for item in dataclasses.fields(made) if item.compare)
    for name in ("__lt__", "__le__", "__gt__", "__ge__"):
        setattr(made, name, _order_method(getattr(operator, name), compared))
    return made


def _order_method(
    holds: Callable[[object, object], bool], compared: Callable[[object], tuple[object, ...]]
) -> Callable[[object, object], object]:
    def method(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return holds(compared(self), compared(other))

    return method


def _state(self: Any) -> tuple[object, ...]:
    return tuple(getattr(self, item.name) for item in dataclasses.fields(self))


def _set_state(self: Any, state: Iterable[object]) -> None:
    for item, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> NoReturn:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getter(names: Iterable[str]) -> Callable[[object], tuple[object, ...]]:
    """Return what gives the values of attributes as a tuple."""
    listed = tuple(names)
    if len(listed) > 1:
        return operator.attrgetter(*listed)
    return lambda value: tuple(getattr(value, name) for name in listed)


def _init_of(cls: type, fields: _Fields) -> Callable[..., None]:
    """Compile `__init__`: it sets each slot by the slot's own descriptor."""
    scope: dict[str, Any] = {"_unset": dataclasses.MISSING}
    parameters, lines = ["self"], []
    for item in sorted(fields, key=lambda item: bool(item.kw_only)):
        name = value = item.name
        if item.kw_only and "*" not in parameters:
            parameters.append("*")
        scope[f"_set_{name}"] = getattr(cls, name).__set__
        if item.default_factory is not dataclasses.MISSING:
            scope[f"_new_{name}"] = item.default_factory
            value = f"_new_{name}() if {name} is _unset else {name}"
            parameters.append(f"{name}=_unset")
        elif item.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = item.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f" _set_{name}(self, {value})")
    source = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or " pass")
    exec(source, scope)  # noqa: S102  the names of fields are all that it is made of
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
