ALTER TABLE run ADD COLUMN IF NOT EXISTS trace TEXT NOT NULL DEFAULT ''; -- names the span of what asked for the run
