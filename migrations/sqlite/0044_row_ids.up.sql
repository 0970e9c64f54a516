-- Rows with large texts lie in tables with row ids: SQLite reads the whole of a row of a table without them whenever a search comes by it,
-- so that each look and each write, of whichever app, took as long as reading the texts of some other app's messages.
CREATE TABLE IF NOT EXISTS event_new (
    tenant TEXT   NOT NULL,
    task   TEXT   NOT NULL,
    seq    BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    kind   TEXT   NOT NULL,
    body   TEXT   NOT NULL,
    PRIMARY KEY (tenant, task, seq)
);
INSERT INTO event_new (tenant, task, seq, at, kind, body) SELECT tenant, task, seq, at, kind, body FROM event;
DROP TABLE event;
ALTER TABLE event_new RENAME TO event;

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
);
INSERT INTO session_turn_new (tenant, owner_iss, owner_sub, context_id, position, task, turn, epoch, at, body)
    SELECT tenant, owner_iss, owner_sub, context_id, position, task, turn, epoch, at, body FROM session_turn;
DROP TABLE session_turn;
ALTER TABLE session_turn_new RENAME TO session_turn;
