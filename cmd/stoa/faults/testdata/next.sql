-- What a later version might do to the schema while this one still serves it: a column with a default and an index.
ALTER TABLE task ADD COLUMN IF NOT EXISTS faults_note TEXT NOT NULL DEFAULT '';
CREATE INDEX IF NOT EXISTS faults_note ON event (kind, tenant, task);
