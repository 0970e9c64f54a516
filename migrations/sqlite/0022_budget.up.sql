-- Budgets of apps; those of tenant '' hold for all apps together.
CREATE TABLE IF NOT EXISTS budget (
    tenant       TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    agent        TEXT    NOT NULL, -- whom it is for; '' = everybody
    key_id       TEXT    NOT NULL,
    owner_sub    TEXT    NOT NULL,
    model        TEXT    NOT NULL, -- a pattern
    unit         TEXT    NOT NULL, -- tokens, calls, money
    amount       BIGINT  NOT NULL,
    currency     TEXT    NOT NULL,
    span         TEXT    NOT NULL, -- the window: minute, hour, day, week, month, year, total
    timezone     TEXT    NOT NULL,
    hard         BOOLEAN NOT NULL,
    on_exhausted TEXT    NOT NULL, -- reject, pause
    thresholds   TEXT    NOT NULL, -- a JSON list of percentages
    created_at   BIGINT  NOT NULL,
    updated_at   BIGINT  NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS budget_name ON budget ((tenant || ''), name);

-- How far a budget is used up in a window. Committed is the sum of what usage tells; reserved that of the
-- reservations that are open.
CREATE TABLE IF NOT EXISTS budget_balance (
    tenant    TEXT   NOT NULL,
    budget    TEXT   NOT NULL,
    since     BIGINT NOT NULL, -- the beginning of the window
    committed BIGINT NOT NULL,
    reserved  BIGINT NOT NULL,
    PRIMARY KEY (tenant, budget, since)
) WITHOUT ROWID;

-- A threshold that a budget has passed, once in each window.
CREATE TABLE IF NOT EXISTS budget_event (
    tenant    TEXT   NOT NULL,
    budget    TEXT   NOT NULL,
    since     BIGINT NOT NULL,
    threshold BIGINT NOT NULL, -- per cent
    name      TEXT   NOT NULL, -- of the budget
    committed BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (tenant, budget, since, threshold)
) WITHOUT ROWID;

-- What a model call under way may cost at most. Its process renews it; that of a dead one expires.
CREATE TABLE IF NOT EXISTS reservation (
    tenant     TEXT    NOT NULL,
    call       TEXT    NOT NULL,
    task       TEXT    NOT NULL,
    epoch      BIGINT  NOT NULL, -- of the task
    holder     TEXT    NOT NULL, -- the process
    expires_at BIGINT  NOT NULL,
    settling   BOOLEAN NOT NULL, -- within the transaction that ends it
    PRIMARY KEY (tenant, call)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reservation_expires ON reservation (expires_at);
CREATE INDEX IF NOT EXISTS reservation_holder ON reservation (holder);

-- How much of which budget a reservation holds.
CREATE TABLE IF NOT EXISTS reservation_line (
    tenant TEXT   NOT NULL,
    call   TEXT   NOT NULL,
    owner  TEXT   NOT NULL, -- the budget's tenant
    budget TEXT   NOT NULL,
    since  BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (tenant, call, owner, budget)
) WITHOUT ROWID;
