-- What a tool server said of its tools when they were first used, or what an operator accepted since.
CREATE TABLE IF NOT EXISTS tool_pin (
    tenant     TEXT   NOT NULL,
    server     TEXT   NOT NULL,
    tool       TEXT   NOT NULL,
    hash       TEXT   NOT NULL,
    body       TEXT   NOT NULL,
    pinned_at  BIGINT NOT NULL,
    drift_hash TEXT   NOT NULL, -- '' where the server says what is pinned
    drift_body TEXT   NOT NULL,
    drifted_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, server, tool)
);

SELECT stoa_protect_tenant('tool_pin');
