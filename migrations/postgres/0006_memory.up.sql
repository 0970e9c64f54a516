CREATE TABLE IF NOT EXISTS session_summary (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    position   BIGINT NOT NULL, -- of the last turn that it covers: its version, which only grows
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, agent)
);

CREATE TABLE IF NOT EXISTS memory (
    tenant     TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    task       TEXT   NOT NULL,
    role       TEXT   NOT NULL, -- who said it: user or agent
    text       TEXT   NOT NULL,
    words      TEXT   NOT NULL, -- what the text is found by, with single spaces between
    at         BIGINT NOT NULL,
    model      TEXT   NOT NULL, -- that made the vector, '' for none
    vector     BYTEA,
    lexemes    TSVECTOR GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS memory_owner ON memory (owner_sub, owner_iss, tenant, id);
CREATE INDEX IF NOT EXISTS memory_lexemes ON memory USING gin (lexemes);

SELECT stoa_protect_tenant('session_summary'), stoa_protect_tenant('memory');
