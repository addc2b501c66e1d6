"""Names of variables that hold secrets."""

import re

_SECRET = re.compile(
    r"(.*(PASSWORD|PASSWD|PASSPHRASE|APIKEY|CREDENTIALS?)|(.+_)?(TOKEN|SECRET|KEY))[0-9_]*"
)
# What comes before `_KEY` and `_TOKEN` in names of other things: columns, words of a tokenizer.
_HARMLESS = re.compile(
    r"(.*_)?(PUBLIC|PUB|PRIMARY|FOREIGN|SORT|PARTITION|CACHE|GROUP|JOIN|ROW|COLUMN|INDEX|SHARD|LOOKUP"
    r"|DICT|DATA|FEATURE|LABEL|METRIC|IMAGE|TEXT|INPUT|OUTPUT|TARGET)_KEY[0-9_]*"
    r"|(.*_)?(PAD|EOS|BOS|UNK|CLS|SEP|MASK|START|END|STOP|SPECIAL|PER)_TOKEN[0-9_]*"
)


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret: `HF_TOKEN` does. `MAX_TOKENS`, `MONKEY`,
    `SSH_PUBLIC_KEY` and the path in `SSH_KEY_FILE` are none."""
    upper = name.upper()
    return _SECRET.fullmatch(upper) is not None and _HARMLESS.fullmatch(upper) is None
