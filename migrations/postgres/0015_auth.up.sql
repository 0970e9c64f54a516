-- An issuer of the app's own, whose tokens speak for it alone: a document, and beside it what no two apps may share,
-- since it tells whose a token is. Empty: the app has none.
ALTER TABLE app ADD COLUMN IF NOT EXISTS auth TEXT NOT NULL DEFAULT '';
ALTER TABLE app ADD COLUMN IF NOT EXISTS auth_key TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE UNIQUE INDEX IF NOT EXISTS app_auth ON app (auth_key) WHERE auth_key <> '';
