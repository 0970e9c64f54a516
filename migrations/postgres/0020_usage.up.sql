-- What was used, a row for each fact that was counted: a model call, a tool call, a run, texts made vectors, bytes
-- kept. Rows are added and never changed. The key tells one fact of a task from another, so that none is counted
-- twice whoever writes it and however often; money is in thousand millionths of the currency.
CREATE TABLE IF NOT EXISTS usage (
    tenant             TEXT    NOT NULL,
    task               TEXT    NOT NULL, -- '' = of none
    key                TEXT    NOT NULL, -- of the fact within its task
    kind               TEXT    NOT NULL, -- model, tool, run, embedding, storage
    at                 BIGINT  NOT NULL, -- when it was used: a model call counts when it began
    recorded_at        BIGINT  NOT NULL, -- when the row was written
    agent              TEXT    NOT NULL,
    owner_iss          TEXT    NOT NULL,
    owner_sub          TEXT    NOT NULL,
    key_id             TEXT    NOT NULL, -- of the API key, '' where there was none
    provider           TEXT    NOT NULL,
    model              TEXT    NOT NULL,
    input_tokens       BIGINT  NOT NULL, -- all, those of the cache included
    output_tokens      BIGINT  NOT NULL, -- all, those of reasoning included
    cache_read_tokens  BIGINT  NOT NULL,
    cache_write_tokens BIGINT  NOT NULL,
    reasoning_tokens   BIGINT  NOT NULL,
    model_calls        BIGINT  NOT NULL,
    tool_calls         BIGINT  NOT NULL,
    runs               BIGINT  NOT NULL,
    run_micros         BIGINT  NOT NULL, -- microseconds at work
    embeddings         BIGINT  NOT NULL, -- texts
    stored_bytes       BIGINT  NOT NULL, -- on the day of at
    cost               BIGINT  NOT NULL, -- nano-units that it costs the platform
    charge             BIGINT  NOT NULL, -- nano-units that the app is charged
    currency           TEXT    NOT NULL, -- of both, '' where no price was in force
    price_version      TEXT    NOT NULL, -- of the price book, '' where none was in force
    unpriced           BOOLEAN NOT NULL, -- the price book names no price for it
    estimated          BOOLEAN NOT NULL, -- the vendor did not say how much it was
    PRIMARY KEY (tenant, task, key)
);
-- No index begins with the tenant, see 0004.
CREATE INDEX IF NOT EXISTS usage_at ON usage ((tenant || ''), at);

SELECT stoa_protect_tenant('usage');
