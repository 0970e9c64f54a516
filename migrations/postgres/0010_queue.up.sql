-- What an app may take of the house; 0 = the default.
ALTER TABLE app ADD COLUMN IF NOT EXISTS weight BIGINT NOT NULL DEFAULT 0; -- runs in a turn of the queue
ALTER TABLE app ADD COLUMN IF NOT EXISTS max_concurrent_tasks BIGINT NOT NULL DEFAULT 0;
ALTER TABLE app ADD COLUMN IF NOT EXISTS queue_depth BIGINT NOT NULL DEFAULT 0;

ALTER TABLE run ADD COLUMN IF NOT EXISTS priority BIGINT NOT NULL DEFAULT 1; -- within its app, the lowest first
ALTER TABLE run ADD COLUMN IF NOT EXISTS ready BOOLEAN NOT NULL DEFAULT TRUE; -- false while a pending run waits for available_at
ALTER TABLE run ADD COLUMN IF NOT EXISTS rescues BIGINT NOT NULL DEFAULT 0; -- how many workers died with it
ALTER TABLE run ADD COLUMN IF NOT EXISTS requeued TEXT NOT NULL DEFAULT ''; -- the task that goes on in place of a failed one

ALTER TABLE worker ADD COLUMN IF NOT EXISTS beats BIGINT NOT NULL DEFAULT 1; -- heartbeats so far; 1 again tells a worker that it counted as dead

-- No index begins with the tenant, see 0004. The turns of the apps walk run_turn from tenant to tenant, by an expression
-- that no other index has: on the primary key the way to the next one may lead over everything that is done.
CREATE INDEX IF NOT EXISTS run_turn ON run ((tenant || ''), priority, available_at) WHERE state = 'pending' AND ready;
CREATE INDEX IF NOT EXISTS run_line ON run ((tenant || '')) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS run_later ON run (available_at) WHERE state = 'pending' AND NOT ready;
CREATE INDEX IF NOT EXISTS run_leased ON run (state, tenant, worker) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS run_failed ON run (task, turn) WHERE state = 'failed';
CREATE INDEX IF NOT EXISTS run_resting ON run (task, turn) WHERE state = 'input_required';
DROP INDEX IF EXISTS run_pending;
DROP INDEX IF EXISTS run_running;
