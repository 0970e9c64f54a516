ALTER TABLE run ADD COLUMN IF NOT EXISTS postponed BOOLEAN NOT NULL DEFAULT FALSE; -- its last attempt does not count: it goes on when its app does
