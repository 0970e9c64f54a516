ALTER TABLE run ADD COLUMN IF NOT EXISTS cut_off BOOLEAN NOT NULL DEFAULT FALSE; -- its worker stopped in the middle of it
