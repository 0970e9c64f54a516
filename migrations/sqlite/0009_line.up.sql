-- The runs of a session stand in line: one is at its head, pending or running, the others are waiting. A run of a session
-- that began with it has no session until another one comes.
ALTER TABLE run ADD COLUMN session TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN followed BOOLEAN NOT NULL DEFAULT FALSE; -- others wait for its end
CREATE UNIQUE INDEX IF NOT EXISTS run_head ON run (session, tenant) WHERE session <> '' AND state IN ('pending', 'running');
CREATE INDEX IF NOT EXISTS run_waiting ON run (session, tenant, created_at, task, turn) WHERE state = 'waiting';
