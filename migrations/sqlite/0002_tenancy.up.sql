CREATE TABLE IF NOT EXISTS app (
    tenant       TEXT   NOT NULL PRIMARY KEY,
    name         TEXT   NOT NULL CONSTRAINT app_name UNIQUE,
    display_name TEXT   NOT NULL,
    status       TEXT   NOT NULL, -- active, suspended, deleting
    revision     BIGINT NOT NULL, -- of the configuration in force
    inputs       BIGINT NOT NULL, -- grows with what a build reads beside the configuration: secrets, grants, plan
    generation   BIGINT NOT NULL, -- grows with every change
    grants       TEXT   NOT NULL,
    plan         TEXT   NOT NULL,
    labels       TEXT   NOT NULL,
    data_key     BLOB   NOT NULL, -- wrapped by the master key
    master_key   TEXT   NOT NULL, -- which master key wraps it
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS app_revision (
    tenant     TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    config     BLOB   NOT NULL, -- sealed
    actor      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, revision)
);

CREATE TABLE IF NOT EXISTS app_secret (
    tenant     TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    value      BLOB   NOT NULL, -- sealed
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

-- Tokens of a subject issued up to this time are refused; the subject '' is the whole app.
CREATE TABLE IF NOT EXISTS app_mark (
    tenant     TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    not_before BIGINT NOT NULL,
    PRIMARY KEY (tenant, subject)
) WITHOUT ROWID;

-- The trail outlives the apps it tells of, so it has no tenant.
CREATE TABLE IF NOT EXISTS audit (
    id     TEXT   NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT   NOT NULL,
    action TEXT   NOT NULL,
    app    TEXT   NOT NULL, -- its name at the time
    app_id TEXT   NOT NULL,
    detail TEXT   NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS audit_at ON audit (at, id);
CREATE INDEX IF NOT EXISTS audit_app ON audit (app, at, id);
CREATE INDEX IF NOT EXISTS audit_actor ON audit (actor, at, id);
CREATE INDEX IF NOT EXISTS audit_deleted ON audit (at) WHERE action = 'app.deleted';

-- Calls of the admin API that carried an idempotency key, and their answers.
CREATE TABLE IF NOT EXISTS admin_call (
    actor      TEXT   NOT NULL,
    key        TEXT   NOT NULL,
    request    TEXT   NOT NULL, -- hash of method, path and body
    claim      TEXT   NOT NULL, -- who carries it out
    status     BIGINT NOT NULL, -- 0 = in progress
    body       TEXT   NOT NULL,
    app_id     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (actor, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS admin_call_created ON admin_call (created_at);
CREATE INDEX IF NOT EXISTS admin_call_app ON admin_call (app_id);
