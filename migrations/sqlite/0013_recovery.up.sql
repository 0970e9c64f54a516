ALTER TABLE run ADD COLUMN cut_off BOOLEAN NOT NULL DEFAULT FALSE; -- its worker stopped in the middle of it
