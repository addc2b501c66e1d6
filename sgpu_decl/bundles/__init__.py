"""sgpu inside a bundle of the Databricks CLI (Declarative Automation Bundles).

    # databricks.yml
    python:
      venv_path: .venv
      resources: ["sgpu_decl.bundles:load_resources"]
      mutators: ["sgpu_decl.bundles:sgpu_tasks"]
    sync: {include: ["sgpu/**"]}

`load_resources` gives the jobs of `sgpu.yml` to the bundle. `sgpu_tasks` fills those tasks of the
bundle's own jobs that launch a run: in Python they are made with `sgpu_task`, in YAML they have the
description `sgpu: NAME`. The extra `bundles` installs what this needs.
"""

from typing import TYPE_CHECKING

__all__ = ["load_resources", "sgpu_task", "sgpu_tasks"]

if TYPE_CHECKING:
    from sgpu_decl.bundles.loader import load_resources
    from sgpu_decl.bundles.task_mutator import sgpu_task, sgpu_tasks
else:

    def __getattr__(name: str) -> object:
        """Load a public name when it is looked at: `sgpu bundle` needs no library of bundles."""
        if name not in __all__:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`", name=name)
        from importlib import import_module

        module = "loader" if name == "load_resources" else "task_mutator"
        return getattr(import_module(f"{__name__}.{module}"), name)
