-- The tool calls that wait for a human at present. What they are, and what came of those that no longer do, stands on
-- the log of their task.
CREATE TABLE IF NOT EXISTS approval (
    tenant TEXT   NOT NULL,
    task   TEXT   NOT NULL,
    seq    BIGINT NOT NULL, -- of the event that tells of it
    due_at BIGINT,          -- when it is too late to decide; NULL = never
    PRIMARY KEY (tenant, task, seq)
);
CREATE INDEX IF NOT EXISTS approval_due ON approval (due_at) WHERE due_at IS NOT NULL;

SELECT stoa_protect_tenant('approval');
