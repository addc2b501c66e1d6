"""Hooks that run before or after the user's code imports a module."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def on_import(
    name: str,
    before: "Callable[[], None] | None" = None,
    after: "Callable[[ModuleType], None] | None" = None,
) -> None:
    """Run something before or after a module is imported; at once where it is already."""
    if name not in sys.modules:
        sys.meta_path.insert(0, _Hook(name, before, after))
        return
    if before is not None:
        before()
    if after is not None:
        after(sys.modules[name])


class _Hook:
    """A finder that waits for one module, and costs nothing before."""

    def __init__(
        self,
        name: str,
        before: "Callable[[], None] | None",
        after: "Callable[[ModuleType], None] | None",
    ) -> None:
        self._name = name
        self._before = before
        self._after = after

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,  # noqa: ARG002 - the protocol of finders
        target: "ModuleType | None" = None,  # noqa: ARG002 - the same
    ) -> "ModuleSpec | None":
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        if self._before is not None:
            self._before()
        if self._after is None:
            return None
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            _add_step(spec.loader, self._after)
        return spec


def _add_step(loader: object, after: "Callable[[ModuleType], None]") -> None:
    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: "ModuleType") -> None:
        execute(module)
        after(module)

    loader.exec_module = exec_module  # type: ignore[attr-defined]
