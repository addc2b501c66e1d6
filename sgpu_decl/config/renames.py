"""`renamed_from`: what a file says about the names that its runs and jobs had before."""

from collections.abc import Iterator

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.desired import Rename
from sgpu_decl.text.yaml_nodes import Mapping, Scalar, is_nothing, place_of

_KEY = "renamed_from"


def rename_findings(root: Mapping) -> Iterator[Diagnostic]:
    """Find names that are not free: the project declares them, or gives them to two."""
    for kind in (Kind.RUN, Kind.JOB):
        block = root.entries.get(f"{kind}s")
        entries = block.entries if isinstance(block, Mapping) else {}
        heirs: dict[str, tuple[str, Scalar]] = {}
        for name, node in entries.items():
            old = node.entries.get(_KEY) if isinstance(node, Mapping) else None
            if not isinstance(old, Scalar) or is_nothing(old) or "${" in old.text:
                continue
            before = old.text.removeprefix(f"{kind}.")
            if before == name:
                yield _own_name(f"{kind}.{name}", old)
            elif before in entries:
                assert isinstance(block, Mapping)  # noqa: S101  it has the entries
                yield Diagnostic(
                    code="renamed_and_declared",
                    summary=f"`{kind}.{name}` is renamed from `{before}`, and `{kind}.{before}` is "
                    "declared",
                    place=place_of(old),
                    hint=f"remove `{before}` from `{kind}s`, or remove `{_KEY}`",
                    related=(Related(place=block.keys[before], note="it is declared here"),),
                )
            elif before in heirs:
                other, place = heirs[before]
                yield Diagnostic(
                    code="renamed_twice",
                    summary=f"`{other}` and `{name}` are both renamed from `{before}`",
                    place=place_of(old),
                    hint=f"keep `{_KEY}` in the one that has its history",
                    related=(Related(place=place_of(place), note=f"`{other}` says so here"),),
                )
            else:
                heirs[before] = name, old


def own_name_findings(root: Mapping) -> Iterator[Diagnostic]:
    """Find a run file whose run is renamed from the name that it has."""
    name, old = root.entries.get("name"), root.entries.get(_KEY)
    if not isinstance(name, Scalar) or not isinstance(old, Scalar) or is_nothing(old):
        return
    if old.text.removeprefix("run.") == name.text:
        yield _own_name(f"run.{name.text}", old)


def _own_name(address: str, old: Scalar) -> Diagnostic:
    return Diagnostic(
        code="renamed_and_declared",
        summary=f"`{address}` is renamed from the name that it has",
        place=place_of(old),
        hint=f"write the name that it had before, or remove `{_KEY}`",
    )


def renames_of(loaded: Loaded) -> tuple[Rename, ...]:
    """What a file renames. The environment that belongs to a run alone goes with it."""
    shared = {run.config.env.use for run in loaded.runs}
    renames: dict[Address, Rename] = {}
    for run in loaded.runs:
        before, address = run.config.renamed_from, Address.run(run.address.name)
        if before is None or address in renames:
            continue
        renames[address] = Rename(
            address=address, before=Address.run(before), place=run.places.get(_KEY)
        )
        if run.config.env.use is None and before not in shared:
            environment = Address(Kind.ENVIRONMENT, run.address.name)
            renames[environment] = Rename(
                address=environment, before=Address(Kind.ENVIRONMENT, before)
            )
    for job in loaded.jobs:
        if (before := job.config.renamed_from) is not None:
            renames[job.address] = Rename(
                address=job.address,
                before=Address(Kind.JOB, before),
                place=job.places.get(_KEY),
            )
    return tuple(renames.values())
