"""Who writes to a state: for locks, entries and proposals."""

import os


def user_name() -> str:
    """The user's name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return f"uid {os.getuid()}"
