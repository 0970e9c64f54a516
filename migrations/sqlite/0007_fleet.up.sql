-- The processes of an installation with what they count of calls, and the last starts by triggers.

-- Processes. Each writes its row every few seconds and deletes it when it stops; one that was killed stays for an hour.
CREATE TABLE IF NOT EXISTS process (
    id             TEXT   PRIMARY KEY, -- also the worker of its runs and the holder of its leader leases
    host           TEXT   NOT NULL,
    version        TEXT   NOT NULL,
    build_commit   TEXT   NOT NULL,
    role           TEXT   NOT NULL,
    migration      BIGINT NOT NULL, -- the last that its program knows
    started_at     BIGINT NOT NULL,
    seen_at        BIGINT NOT NULL,
    stopping_at    BIGINT NOT NULL DEFAULT 0, -- 0 = it serves
    awaits_restart TEXT   NOT NULL DEFAULT '' -- keys of its configuration file that act after a restart, JSON; '' = none
) WITHOUT ROWID;

-- What a process counted of calls and runs in about a minute, by app. Rows are kept for an hour, also those of processes
-- that have stopped.
CREATE TABLE IF NOT EXISTS traffic (
    process    TEXT   NOT NULL,
    period     BIGINT NOT NULL, -- 1, 2, 3, ... of the process
    started_at BIGINT NOT NULL,
    counts     TEXT   NOT NULL, -- JSON
    PRIMARY KEY (process, period)
);
CREATE INDEX IF NOT EXISTS traffic_started ON traffic (started_at);

-- The last starts of agents by triggers, a bounded number for each agent: ticks of schedules, starts by hand, deliveries
-- to webhooks.
CREATE TABLE IF NOT EXISTS trigger_start (
    tenant  TEXT   NOT NULL,
    agent   TEXT   NOT NULL,
    id      TEXT   NOT NULL, -- ascending with the time
    at      BIGINT NOT NULL,
    kind    TEXT   NOT NULL, -- tick, manual, delivery
    outcome TEXT   NOT NULL, -- as in the metrics
    task    TEXT   NOT NULL, -- '' = none
    error   TEXT   NOT NULL, -- why there is none
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS trigger_start_agent ON trigger_start (tenant, agent, id);
