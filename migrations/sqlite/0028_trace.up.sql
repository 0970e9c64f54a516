ALTER TABLE run ADD COLUMN trace TEXT NOT NULL DEFAULT ''; -- names the span of what asked for the run
