-- The books: double entry, in thousand millionths of a currency. They are the platform's and outlive the apps they tell of, so
-- they have no tenant; app is the id of one. Entries and postings are added, never changed or deleted, by anybody.

-- How far the books of an app are. Whoever writes in them holds this row.
CREATE TABLE IF NOT EXISTS ledger (
    app             TEXT   PRIMARY KEY,
    name            TEXT   NOT NULL, -- of the app when its books were last written in
    opened_at       BIGINT NOT NULL,
    entries         BIGINT NOT NULL,
    billed_month    TEXT   NOT NULL, -- the last month that was invoiced, '' = none
    billed_until    BIGINT NOT NULL, -- its end: all that was used before is invoiced, if it had been recorded by then
    billed_recorded BIGINT NOT NULL  -- all that was used and recorded before is invoiced; what came later usage_billed tells
);

CREATE TABLE IF NOT EXISTS ledger_entry (
    app      TEXT   NOT NULL,
    id       BIGINT NOT NULL, -- 1, 2, 3 ... without gaps
    kind     TEXT   NOT NULL, -- charge, cost, grant, use, expiry, revocation, return, reversal
    invoice  TEXT   NOT NULL, -- which it belongs to, '' = none
    credit   TEXT   NOT NULL, -- which it is about, '' = none
    currency TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (app, id)
);

-- Those of an entry sum to zero. Debits are positive, credits negative.
CREATE TABLE IF NOT EXISTS ledger_posting (
    app     TEXT   NOT NULL,
    entry   BIGINT NOT NULL,
    account TEXT   NOT NULL, -- receivable, revenue, credits, promotion, cost, payable
    amount  BIGINT NOT NULL,
    PRIMARY KEY (app, entry, account)
);

SELECT stoa_protect_platform('ledger');
SELECT stoa_protect_platform('ledger_entry');
SELECT stoa_protect_platform('ledger_posting');
REVOKE UPDATE, DELETE ON ledger_entry, ledger_posting FROM stoa_platform;

-- Usage that is invoiced and was recorded so shortly before that rows beside it may not have been there to be seen.
CREATE TABLE IF NOT EXISTS usage_billed (
    tenant      TEXT   NOT NULL,
    task        TEXT   NOT NULL,
    key         TEXT   NOT NULL,
    invoice     TEXT   NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, task, key)
);
SELECT stoa_protect_tenant('usage_billed');

CREATE INDEX IF NOT EXISTS usage_recorded ON usage ((tenant || ''), recorded_at);
