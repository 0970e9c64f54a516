-- Who and from where, and an entry's place in the chain of its app.
ALTER TABLE audit ADD COLUMN IF NOT EXISTS issuer TEXT NOT NULL DEFAULT ''; -- who vouches for the actor; '' = nobody: the operator, or the platform itself
ALTER TABLE audit ADD COLUMN IF NOT EXISTS client TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN IF NOT EXISTS request_id TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN IF NOT EXISTS seq BIGINT NOT NULL DEFAULT 0; -- from 1; 0 = not in the chain yet
ALTER TABLE audit ADD COLUMN IF NOT EXISTS prev TEXT NOT NULL DEFAULT ''; -- hash of the entry before it
ALTER TABLE audit ADD COLUMN IF NOT EXISTS hash TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX IF NOT EXISTS audit_seq ON audit (app_id, seq) WHERE seq > 0;
CREATE INDEX IF NOT EXISTS audit_loose ON audit (app_id, at, id) WHERE seq = 0;

-- How far each chain has come: that of an app, the platform's own (''), and how many there are ('*').
CREATE TABLE IF NOT EXISTS audit_head (
    app_id     TEXT   NOT NULL PRIMARY KEY,
    seq        BIGINT NOT NULL,
    hash       TEXT   NOT NULL,
    seal       BYTEA  NOT NULL, -- seq and hash under a master key: who has but the database cannot make one
    master_key TEXT   NOT NULL  -- which one
);

SELECT stoa_protect_platform('audit_head');

-- What happens in an app is written with the app's own rows: into its own part of the trail, which it cannot read, and
-- never into a chain.
GRANT INSERT (id, at, actor, issuer, action, app, app_id, client, request_id, detail) ON audit TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON audit;
CREATE POLICY tenant ON audit FOR INSERT TO stoa_tenant WITH CHECK (app_id = stoa_tenant());
