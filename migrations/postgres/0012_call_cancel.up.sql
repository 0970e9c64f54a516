-- The running tool calls that somebody wants to end, for the process that runs them to see.
CREATE TABLE IF NOT EXISTS call_cancel (
    tenant   TEXT    NOT NULL,
    task     TEXT    NOT NULL,
    turn     BIGINT  NOT NULL,
    call     TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    taken    BOOLEAN NOT NULL, -- its process has ended it
    asked_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, task, turn, call)
);
CREATE INDEX IF NOT EXISTS call_cancel_open ON call_cancel (task) WHERE NOT taken;

SELECT stoa_protect_tenant('call_cancel');
