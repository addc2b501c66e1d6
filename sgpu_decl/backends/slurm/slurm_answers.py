"""What a cluster says of itself while a plan is made.

Answers are kept for ten minutes, because each question holds up the controller of a whole cluster;
a plan says how old they are. A plan that is applied at once asks again.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING

from sgpu_decl.backends.answer_cache import AnswerCache
from sgpu_decl.backends.slurm.cluster_state import (
    SlurmNode,
    SlurmPartition,
    parse_nodes,
    parse_partitions,
    parse_start,
)
from sgpu_decl.backends.slurm.slurm_limits import (
    ASSOCIATION,
    QOS,
    SlurmAssociation,
    SlurmLimits,
    enforces_limits,
    in_order,
    longest,
    parse_associations,
    parse_qos,
    setting,
)
from sgpu_decl.errors import BackendError

if TYPE_CHECKING:
    from sgpu_decl.backends.slurm.login_nodes import LoginNodes
    from sgpu_decl.backends.slurm.options import SlurmOptions
    from sgpu_decl.backends.slurm.slurm_commands import SlurmCommands
    from sgpu_decl.model.jsonable import Json

_SCONTROL = ("scontrol", "--all", "--oneliner")
_SACCTMGR = ("sacctmgr", "--parsable2")
_PATIENCE = 5.0  # seconds for all predictions of a plan: behind a long queue each takes its time


class SlurmAnswers:
    """Each question is asked once in a process, and raises BackendError.

    Args:
        cluster: what names the cluster and its user.
        for_apply: whether the plan is applied at once, so that nothing old counts.
    """

    def __init__(
        self, commands: "SlurmCommands", cluster: Sequence[str], for_apply: Callable[[], bool]
    ) -> None:
        self._commands = commands
        self._kept = AnswerCache("slurm", lambda: cluster)
        self._for_apply = for_apply
        self._spent = 0.0
        self.age = 0.0
        """Seconds of the oldest answer that was used."""
        self.start = cache(self._start)

    @cached_property
    def nodes(self) -> Sequence[SlurmNode]:
        return parse_nodes(self._ask(*_SCONTROL, "--details", "show", "node"))

    @cached_property
    def partitions(self) -> Mapping[str, SlurmPartition]:
        text = self._ask(*_SCONTROL, "show", "partition")
        return {one.name: one for one in parse_partitions(text)}

    @cached_property
    def associations(self) -> Sequence[SlurmAssociation]:
        """Those of this user; none where nobody keeps accounts."""
        with suppress(BackendError):
            user = f"user={self._ask('id', '-un').strip()}"
            show = (*_SACCTMGR, "show", "associations", f"format={','.join(ASSOCIATION)}")
            mine = self._ask(*show, user)
            return parse_associations(mine, self._ask(*show, "user=") if mine else "")
        return ()

    @cached_property
    def limits(self) -> Mapping[str, SlurmLimits] | None:
        """Those of QOS, by name; None where the cluster does not enforce limits."""
        with suppress(BackendError):
            if self.associations and enforces_limits(self._config):
                return parse_qos(self._ask(*_SACCTMGR, "show", "qos", f"format={','.join(QOS)}"))
        return None

    @cached_property
    def _config(self) -> str:
        return self._ask("scontrol", "show", "config")

    @property
    def array_size(self) -> int:
        """The tasks of an array at most; 1 where the cluster has no arrays. Raises BackendError."""
        size = setting(self._config, "MaxArraySize")
        return max(1, int(size)) if size.isdigit() else 1001

    def chosen(self, options: "SlurmOptions") -> Sequence[SlurmPartition]:
        """The partitions of a run."""
        if options.partition is None:
            return [one for one in self.partitions.values() if one.default]
        names = options.partition.split(",")
        return [self.partitions[name] for name in names if name in self.partitions]

    def limits_of(
        self, options: "SlurmOptions", partition: SlurmPartition
    ) -> Sequence[SlurmLimits]:
        """The limits that accounting enforces for a run in a partition."""
        if self.limits is None:
            return ()
        return in_order(partition, options.qos, options.account, self.associations, self.limits)

    def longest(self, options: "SlurmOptions") -> tuple[int, str] | None:
        """The seconds that a job may ask for, and whose limit that is; None for no limit."""
        ends = [longest(one, self.limits_of(options, one)) for one in self.chosen(options)]
        return None if None in ends else max(filter(None, ends), default=None)

    def _start(self, options: tuple[str, ...]) -> int | None:
        """When Slurm would start a job that is submitted now with these options, in seconds since
        1970; None where it does not tell."""
        if self._spent > _PATIENCE:
            return None
        began = time.monotonic()
        try:
            return parse_start(self._said("--test-only", *options, ask=self._commands.test_only))
        except BackendError:
            return None
        finally:
            self._spent += time.monotonic() - began

    def _ask(self, *words: str) -> str:
        return self._said(*words, ask=self._commands.ask)

    def _said(self, *words: str, ask: Callable[..., str]) -> str:
        question: Json = list(words)
        if not self._for_apply() and isinstance(answer := self._kept.cached(question), str):
            self.age = max(self.age, self._kept.age(question))
            return answer
        try:
            said = ask(*words)
        except BackendError as error:
            if words[0] != _SACCTMGR[0] or error.retryable:
                raise
            said = ""  # nobody keeps accounts: that is kept, too
        self._kept.remember(question, said)
        return said


class SlurmClusterAnswers:
    """The answers of each cluster. See `SlurmAnswers`."""

    def __init__(self, login_nodes: "LoginNodes", for_apply: Callable[[], bool]) -> None:
        self._login_nodes = login_nodes
        self._for_apply = for_apply
        self._answers: dict[Sequence[str], SlurmAnswers] = {}

    def of(self, options: "SlurmOptions") -> SlurmAnswers:
        """Those of the cluster of a `backend` block."""
        names = _cluster_names(options)
        if names not in self._answers:
            commands = self._login_nodes.of(options).commands
            self._answers[names] = SlurmAnswers(commands, names, self._for_apply)
        return self._answers[names]


def _cluster_names(options: "SlurmOptions") -> Sequence[str]:
    """What names the cluster of a `backend` block, and who asks."""
    if options.login is not None:
        # With the folder there: a plan that asks it says whether it can be used.
        return ("login", options.login, options.storage, options.python or "")
    return (os.environ.get("SLURM_CONF", ""), os.uname().nodename, str(os.getuid()))
