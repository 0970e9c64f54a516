-- The key under which a credit is granted once, however often that is asked for: each actor's own within an app.
ALTER TABLE credit ADD COLUMN idempotency_key TEXT NOT NULL DEFAULT ''; -- '' = of before there were any
CREATE UNIQUE INDEX IF NOT EXISTS credit_once ON credit (app, actor, idempotency_key) WHERE idempotency_key <> '';
