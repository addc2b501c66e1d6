"""References to secrets: `env:NAME`, `file:PATH`, `databricks:scope/key`."""

import re
from typing import Any, ClassVar

from sgpu_decl.config.problems import problem
from sgpu_decl.config.text_types import Textual

_FORMS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "file": re.compile(r"[^\0]+"),
    "databricks": re.compile(r"[A-Za-z0-9_.@-]{1,128}/[A-Za-z0-9_.@-]{1,128}"),
}
_HINT = "write `env:NAME`, `file:PATH` or `databricks:scope/key`"


class SecretRef(Textual, str):
    """Where a secret's value is found at launch; never the value. `scheme:reference`."""

    __slots__ = ()
    published: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^env:[A-Za-z_][A-Za-z0-9_]*$|^file:.+$"
        r"|^(databricks:)?[A-Za-z0-9_.@-]+/[A-Za-z0-9_.@-]+$|\$\{",
        "examples": ["env:HF_TOKEN", "databricks:scope/key"],
    }

    @property
    def scheme(self) -> str:
        return self.partition(":")[0]

    @property
    def reference(self) -> str:
        return self.partition(":")[2]

    @classmethod
    def read(cls, value: object) -> "SecretRef":
        """Validate a reference; bare `scope/key` means `databricks:scope/key`.

        Raises:
            PydanticCustomError: it is none; the message never repeats the text, which may be a
                secret itself.
        """
        if isinstance(value, SecretRef):
            return value
        if isinstance(value, str):
            scheme, colon, reference = value.partition(":")
            if not colon and _FORMS["databricks"].fullmatch(value):
                return cls(f"databricks:{value}")
            form = _FORMS.get(scheme) if colon else None
            if form is not None and form.fullmatch(reference):
                return cls(value)
        raise problem("bad_secret", "{path} is not a reference to a secret", _HINT)
