-- Who and from where, and an entry's place in the chain of its app.
ALTER TABLE audit ADD COLUMN issuer TEXT NOT NULL DEFAULT ''; -- who vouches for the actor; '' = nobody: the operator, or the platform itself
ALTER TABLE audit ADD COLUMN client TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN seq BIGINT NOT NULL DEFAULT 0; -- from 1; 0 = not in the chain yet
ALTER TABLE audit ADD COLUMN prev TEXT NOT NULL DEFAULT ''; -- hash of the entry before it
ALTER TABLE audit ADD COLUMN hash TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX IF NOT EXISTS audit_seq ON audit (app_id, seq) WHERE seq > 0;
CREATE INDEX IF NOT EXISTS audit_loose ON audit (app_id, at, id) WHERE seq = 0;

-- How far each chain has come: that of an app, the platform's own (''), and how many there are ('*').
CREATE TABLE IF NOT EXISTS audit_head (
    app_id     TEXT   NOT NULL PRIMARY KEY,
    seq        BIGINT NOT NULL,
    hash       TEXT   NOT NULL,
    seal       BLOB   NOT NULL, -- seq and hash under a master key: who has but the database cannot make one
    master_key TEXT   NOT NULL  -- which one
) WITHOUT ROWID;
