-- Conversations in a database that an app brings: PostgreSQL or SQLite alike.
CREATE TABLE session_turn (
    tenant     TEXT   NOT NULL, -- the app's id
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    turn       BIGINT NOT NULL, -- of the task
    epoch      BIGINT NOT NULL, -- at which the turn's worker held its task
    at         BIGINT NOT NULL, -- microseconds since 1970
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, position)
);

CREATE TABLE session_summary (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    position   BIGINT NOT NULL, -- of the last turn that it covers
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, agent)
);
