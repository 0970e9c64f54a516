-- Who is told outside of what happens to a task: where, how far it has been told, and which process is telling it.
CREATE TABLE IF NOT EXISTS receiver (
    tenant        TEXT   NOT NULL,
    task          TEXT   NOT NULL,
    id            TEXT   NOT NULL,
    form          TEXT   NOT NULL, -- what it is told in
    value         TEXT   NOT NULL, -- its address and credentials, sealed, in base64
    master_key    TEXT   NOT NULL, -- that the value's own key is wrapped by
    state         TEXT   NOT NULL, -- open, done (it knows the end), dead (given up)
    told          BIGINT NOT NULL, -- sequence of the last event that it knows of
    attempts      BIGINT NOT NULL, -- that failed since the last that did not
    failing_since BIGINT NOT NULL, -- 0 = the last did not
    due_at        BIGINT NOT NULL, -- not before
    holder        TEXT   NOT NULL, -- of the lease
    until         BIGINT NOT NULL, -- so long, unless it says so again
    error         TEXT   NOT NULL, -- why the last attempt failed
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, task, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS receiver_open ON receiver (due_at) WHERE state = 'open';
CREATE INDEX IF NOT EXISTS receiver_master ON receiver (master_key);
