CREATE TABLE IF NOT EXISTS session_summary (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    position   BIGINT NOT NULL, -- of the last turn that it covers: its version, which only grows
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, agent)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS memory (
    n          INTEGER PRIMARY KEY, -- the full-text index's name of the row
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
    vector     BLOB,
    -- One word that stands for the owner, so that the index reads no further than the owner's rows.
    scope      TEXT GENERATED ALWAYS AS (hex(tenant || char(31) || owner_iss || char(31) || owner_sub)) VIRTUAL,
    UNIQUE (tenant, id)
);
CREATE INDEX IF NOT EXISTS memory_owner ON memory (owner_sub, owner_iss, tenant, id);

CREATE VIRTUAL TABLE IF NOT EXISTS memory_words USING fts5(
    scope, words, content = 'memory', content_rowid = 'n', tokenize = "unicode61 remove_diacritics 0 categories 'L* N* M* Co'"
);
-- What is erased leaves the index's pages as well.
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER IF NOT EXISTS memory_added AFTER INSERT ON memory BEGIN
    INSERT INTO memory_words (rowid, scope, words) VALUES (new.n, new.scope, new.words);
END;
CREATE TRIGGER IF NOT EXISTS memory_gone AFTER DELETE ON memory BEGIN
    INSERT INTO memory_words (memory_words, rowid, scope, words) VALUES ('delete', old.n, old.scope, old.words);
END;
