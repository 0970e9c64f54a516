-- Which turn of its task a turn of a session is, at which epoch it was written, and when: where sessions and tasks are
-- in two databases the first two make writing it again harmless. Rows from before are taken to be new. A column cannot
-- be added twice, so the table is made anew.
CREATE TABLE IF NOT EXISTS session_turn_new (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    turn       BIGINT NOT NULL DEFAULT 0,
    epoch      BIGINT NOT NULL DEFAULT 0,
    at         BIGINT NOT NULL DEFAULT 0,
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, position)
) WITHOUT ROWID;
INSERT INTO session_turn_new (tenant, owner_iss, owner_sub, context_id, position, task, at, body)
    SELECT tenant, owner_iss, owner_sub, context_id, position, task, stoa_now(), body FROM session_turn;
DROP TABLE session_turn;
ALTER TABLE session_turn_new RENAME TO session_turn;

-- What goes when its task goes.
CREATE INDEX IF NOT EXISTS sent_task ON sent (task, tenant);

-- Work that one process does for all: who does it, and until when nobody else may.
CREATE TABLE IF NOT EXISTS duty (
    name   TEXT   PRIMARY KEY,
    holder TEXT   NOT NULL,
    until  BIGINT NOT NULL
) WITHOUT ROWID;
