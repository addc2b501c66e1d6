"""Names in the head's folder and in the key-value store that clients use too. It imports no Ray."""

HEAD_FOLDER = "sgpu"
"""The head's folder, among the logs of Ray's session."""

INDEX = ".index"
"""The file of each folder that says what the folder holds."""

DEPOT = ".depot"
"""The folder of the depot itself."""

ANSWERS = f"{DEPOT}/answers"
"""That of its answers, each under the id of the message."""

DEPOT_FILE = "depot.json"
"""The file of a package that makes its job a depot. The one that serves has a file of this name in
its own folder, with its job."""

DEPOT_ID = "sgpu-depot-"
"""What the keys of messages to the depot, and the ids of its jobs, begin with."""


def values_name(token: str) -> str:
    """The key of the `secrets` of a launch, and of the `credentials` of its tracking server."""
    return f"{token}.values"


def cancel_name(token: str) -> str:
    """The key by which a driver is asked to stop the ranks."""
    return f"{token}.cancel"
