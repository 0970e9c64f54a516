-- The schedules of agents: when each is due next, and how it went last.
CREATE TABLE IF NOT EXISTS schedule (
    tenant     TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    spec       TEXT   NOT NULL, -- time zone and cron
    next_at    BIGINT NOT NULL,
    held_until BIGINT NOT NULL DEFAULT 0, -- somebody starts the agent
    last_at    BIGINT NOT NULL DEFAULT 0, -- the scheduled time
    last_task  TEXT   NOT NULL DEFAULT '',
    last_error TEXT   NOT NULL DEFAULT '', -- why no task was started
    PRIMARY KEY (tenant, agent)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS schedule_due ON schedule (next_at);

-- The generation of an app that its schedules were read at.
CREATE TABLE IF NOT EXISTS schedule_app (
    tenant     TEXT   PRIMARY KEY,
    generation BIGINT NOT NULL
) WITHOUT ROWID;
