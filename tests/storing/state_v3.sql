PRAGMA application_id = 1936158837;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE applied_plans (
        plan_id TEXT PRIMARY KEY,
        applied_at TEXT NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "applied_plans" VALUES('plan-1','2026-05-01T12:00:00Z');
CREATE TABLE attempts (
        address TEXT NOT NULL,
        number INTEGER NOT NULL,
        token TEXT NOT NULL,
        backend TEXT NOT NULL,
        state TEXT NOT NULL,
        spec TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        code_digest TEXT,
        environment_digest TEXT,
        packages_digest TEXT,
        pool TEXT,
        created_at TEXT NOT NULL,
        started_at TEXT,
        ended_at TEXT,
        exit_code INTEGER,
        failure TEXT,
        plan_id TEXT,
        PRIMARY KEY (address, number)
    ) WITHOUT ROWID;
INSERT INTO "attempts" VALUES('run.train',1,'token-train-1','local','running','{"gpus":2}','sha256:aa','sha256:bb',NULL,NULL,'p-1','2026-05-01T12:00:00.250000Z',NULL,NULL,NULL,NULL,'plan-1');
CREATE TABLE intents (
        token TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        owner TEXT NOT NULL,
        action TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        plan_id TEXT NOT NULL,
        attempt_record TEXT,
        created_at TEXT NOT NULL,
        resource_record TEXT
    ) WITHOUT ROWID;
INSERT INTO "intents" VALUES('token-train-2','run.train','run.yaml','create',2,'plan-1','{"address": "run.train", "number": 2, "backend": "local", "token": "token-train-2", "lineage": "lin", "owner": "run.yaml", "spec": "{\"gpus\":2}", "fingerprint": "sha256:aa", "code_digest": "sha256:bb", "environment_digest": null, "packages_digest": null, "pool": "p-1", "wait_for": [1]}','2026-05-01T12:00:00.250000Z',NULL);
CREATE TABLE lock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id TEXT NOT NULL,
        who TEXT NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        boot TEXT,
        started TEXT,
        operation TEXT NOT NULL,
        since TEXT NOT NULL
    );
CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        lineage TEXT NOT NULL,
        serial INTEGER NOT NULL,
        tool_version TEXT NOT NULL
    );
INSERT INTO "meta" VALUES(1,'lin',6,'0.1.0');
CREATE TABLE package_lists (
        digest TEXT PRIMARY KEY,
        packages TEXT NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "package_lists" VALUES('sha256:f9e2274f1ae32e37f1e88964e57e934c87ae80a135639c0968ec4f3e494aab68','[["torch","2.13.0"]]');
CREATE TABLE resources (
        address TEXT PRIMARY KEY,
        backend TEXT NOT NULL,
        owner TEXT NOT NULL,
        spec TEXT NOT NULL,
        last INTEGER,
        numbered INTEGER NOT NULL,
        gone INTEGER NOT NULL,
        remote TEXT
    ) WITHOUT ROWID;
INSERT INTO "resources" VALUES('job.nightly','databricks','sgpu.yml','{}',NULL,0,0,'{"id":7}');
INSERT INTO "resources" VALUES('run.train','local','run.yaml','{"gpus":2}',1,1,0,NULL);
CREATE INDEX attempts_active ON attempts (state)
        WHERE state IN ('queued', 'staging', 'starting', 'running', 'stopping');
COMMIT;
