-- The tables that Stoa creates in a database that an app configures: conversations and counts against rate limits. The
-- same text is for PostgreSQL and SQLite. The columns are those of the platform's own tables, so that the same
-- statements serve both. There is no row-level security: the database belongs to the app.

CREATE TABLE session_turn (
    tenant     TEXT   NOT NULL, -- the app's id
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    turn       BIGINT NOT NULL, -- of the task; with the epoch it makes a repeated write harmless
    epoch      BIGINT NOT NULL, -- of the task when the turn was written
    at         BIGINT NOT NULL, -- microseconds since 1970
    body       TEXT   NOT NULL, -- JSON
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, position)
);

CREATE TABLE session_summary (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    position   BIGINT NOT NULL, -- of the last turn it covers
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, agent)
);

CREATE TABLE rate_count (
    tenant  TEXT   NOT NULL,
    counter TEXT   NOT NULL, -- rule, key and start of the window
    end_at  BIGINT NOT NULL, -- of the window, microseconds since 1970
    used    BIGINT NOT NULL,
    PRIMARY KEY (tenant, counter)
);
