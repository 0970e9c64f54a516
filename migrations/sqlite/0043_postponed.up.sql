ALTER TABLE run ADD COLUMN postponed BOOLEAN NOT NULL DEFAULT FALSE; -- its last attempt does not count: it goes on when its app does
