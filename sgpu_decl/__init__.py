"""Plan and apply for multi-GPU runs."""

from typing import TYPE_CHECKING

__all__ = ["__version__", "compute", "distributed", "ray_launch", "runtime"]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sgpu_decl import compute, runtime
    from sgpu_decl.functions.decorator import distributed, ray_launch
else:

    def __getattr__(name: str) -> object:
        """Load a public module when it is first looked at: `sgpu --help` needs none of them."""
        if name not in __all__:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`", name=name)
        from importlib import import_module

        if name in ("distributed", "ray_launch"):  # a module of that name would hide the function
            return getattr(import_module(f"{__name__}.functions.decorator"), name)
        return import_module(f"{__name__}.{name}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
