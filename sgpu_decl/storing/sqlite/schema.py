"""The tables of the state database."""

from sgpu_decl.storing.sqlite.rows import LAUNCH_COLUMNS

# "sgpu" in ASCII: `file state.db` and we both know by it that the database is ours.
APPLICATION_ID = 0x73677075
VERSION = 3

# Times are RFC 3339 text in UTC, so that a person who opens the file can read them. The history in
# `attempts` is only ever added to; the columns of what was observed are filled in later.
_LAUNCH = ", ".join(f"{name} {kind}" for name, kind in LAUNCH_COLUMNS.items())
DDL = (
    """CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        lineage TEXT NOT NULL,
        serial INTEGER NOT NULL,
        tool_version TEXT NOT NULL
    )""",
    """CREATE TABLE resources (
        address TEXT PRIMARY KEY,
        backend TEXT NOT NULL,
        owner TEXT NOT NULL,
        spec TEXT NOT NULL,
        last INTEGER,
        numbered INTEGER NOT NULL,
        gone INTEGER NOT NULL,
        remote TEXT
    ) WITHOUT ROWID""",
    f"""CREATE TABLE attempts (
        address TEXT NOT NULL,
        number INTEGER NOT NULL,
        token TEXT NOT NULL,
        backend TEXT NOT NULL,
        state TEXT NOT NULL,
        {_LAUNCH},
        created_at TEXT NOT NULL,
        started_at TEXT,
        ended_at TEXT,
        exit_code INTEGER,
        failure TEXT,
        plan_id TEXT,
        PRIMARY KEY (address, number)
    ) WITHOUT ROWID""",
    """CREATE INDEX attempts_active ON attempts (state)
        WHERE state IN ('queued', 'staging', 'starting', 'running', 'stopping')""",
    """CREATE TABLE intents (
        token TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        owner TEXT NOT NULL,
        action TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        plan_id TEXT NOT NULL,
        attempt_record TEXT,
        created_at TEXT NOT NULL,
        resource_record TEXT
    ) WITHOUT ROWID""",
    """CREATE TABLE package_lists (
        digest TEXT PRIMARY KEY,
        packages TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE applied_plans (
        plan_id TEXT PRIMARY KEY,
        applied_at TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE lock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id TEXT NOT NULL,
        who TEXT NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        boot TEXT,
        started TEXT,
        operation TEXT NOT NULL,
        since TEXT NOT NULL
    )""",
)
