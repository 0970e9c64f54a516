-- Which turn of its task a turn of a session is, at which epoch it was written, and when: where sessions and tasks are
-- in two databases the first two make writing it again harmless. Rows from before are taken to be new.
ALTER TABLE session_turn
    ADD COLUMN IF NOT EXISTS turn  BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS epoch BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS at    BIGINT NOT NULL DEFAULT stoa_now();

-- What goes when its task goes.
CREATE INDEX IF NOT EXISTS sent_task ON sent (task, tenant);

-- Work that one process does for all: who does it, and until when nobody else may.
CREATE TABLE IF NOT EXISTS duty (
    name   TEXT   PRIMARY KEY,
    holder TEXT   NOT NULL,
    until  BIGINT NOT NULL
);

SELECT stoa_protect_platform('duty');
