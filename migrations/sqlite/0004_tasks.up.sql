CREATE TABLE IF NOT EXISTS task (
    tenant     TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    epoch      BIGINT NOT NULL, -- who may write: grows with each lease
    seq        BIGINT NOT NULL, -- of the last event
    status_seq BIGINT NOT NULL, -- of the last event that holds a status
    turn       BIGINT NOT NULL, -- of the last run
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
-- Neither index begins with the tenant: a planner without statistics would take it for the primary key.
CREATE INDEX IF NOT EXISTS task_owner ON task (owner_sub, tenant, id);
CREATE INDEX IF NOT EXISTS task_context ON task (context_id, tenant, id);

CREATE TABLE IF NOT EXISTS event (
    tenant TEXT   NOT NULL,
    task   TEXT   NOT NULL,
    seq    BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    kind   TEXT   NOT NULL,
    body   TEXT   NOT NULL,
    PRIMARY KEY (tenant, task, seq)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS run (
    tenant       TEXT   NOT NULL,
    task         TEXT   NOT NULL,
    turn         BIGINT NOT NULL,
    state        TEXT   NOT NULL,
    attempts     BIGINT NOT NULL,
    revision     BIGINT NOT NULL, -- of the app's configuration
    first_seq    BIGINT NOT NULL, -- of the event that opened the turn
    worker       TEXT   NOT NULL,
    available_at BIGINT NOT NULL,
    last_error   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (tenant, task, turn)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_pending ON run (available_at) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS run_running ON run (worker) WHERE state = 'running';

CREATE TABLE IF NOT EXISTS worker (
    id           TEXT   PRIMARY KEY,
    heartbeat_at BIGINT NOT NULL,
    config       TEXT   NOT NULL -- hash of the process's own configuration file, '' without one
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS session_turn (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, position)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sent (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    context_id TEXT   NOT NULL, -- '' where the client named none
    message_id TEXT   NOT NULL,
    variant    TEXT   NOT NULL, -- '' within a context; the hash where there is none: there only an equal body is the same
    hash       TEXT   NOT NULL,
    task       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, agent, context_id, message_id, variant)
) WITHOUT ROWID;
