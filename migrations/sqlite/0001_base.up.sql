-- SQLite has neither roles nor row-level security: the store's handle is the lock. stoa_now() is registered by the
-- process.
CREATE TABLE IF NOT EXISTS stoa_engine (name TEXT PRIMARY KEY);
