"""How a resource is named: `run.train`, `run.train["lr=0.001,seed=1"]`."""

import re
from enum import StrEnum

from sgpu_decl.frozen_dataclass import dataclass

NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_ADDRESS = re.compile(rf'(run|job|environment)\.({NAME})(?:\["(.*)"\])?', re.DOTALL)


class Kind(StrEnum):
    RUN = "run"
    JOB = "job"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`key` is the canonical key of a matrix cell, or empty."""

    kind: Kind
    name: str
    key: str = ""

    def __str__(self) -> str:
        return f'{self.kind}.{self.name}["{self.key}"]' if self.key else f"{self.kind}.{self.name}"

    def __hash__(self) -> int:
        """Without `kind`, whose hash is slow: plans look addresses up a hundred thousand times."""
        return hash((self.name, self.key))

    @property
    def label(self) -> str:
        """The name a person says: `train`, or `train["lr=0.001"]`."""
        return str(self).partition(".")[2]

    @property
    def folder(self) -> str:
        """The name of the run's folder: `train`, or `train@<hash8>` for a matrix cell."""
        if not self.key:
            return self.name
        import hashlib  # with OpenSSL, which takes 2 ms

        return f"{self.name}@{hashlib.sha256(self.key.encode()).hexdigest()[:8]}"

    @classmethod
    def run(cls, name: str, key: str = "") -> "Address":
        return cls(Kind.RUN, name, key)

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read the text form.

        Raises:
            ValueError: the text is no address.
        """
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text}` is not an address such as `run.train`")
        return cls(Kind(match[1]), match[2], match[3] or "")
