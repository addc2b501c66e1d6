CREATE SCHEMA IF NOT EXISTS sgpu;
CREATE TABLE IF NOT EXISTS sgpu.entries (project text, target text, number bigint, entry text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (project, target, number));
CREATE TABLE IF NOT EXISTS sgpu.checkpoints (project text, target text, number bigint, content bytea NOT NULL,
  PRIMARY KEY (project, target, number));
CREATE TABLE IF NOT EXISTS sgpu.proposals (project text, target text, id text, content bytea NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (project, target, id));
GRANT USAGE ON SCHEMA sgpu TO sgpu_plan, sgpu_apply;
GRANT SELECT ON ALL TABLES IN SCHEMA sgpu TO sgpu_plan, sgpu_apply;
GRANT INSERT ON ALL TABLES IN SCHEMA sgpu TO sgpu_apply;
GRANT INSERT ON sgpu.proposals TO sgpu_plan;
