-- What an invoice needs besides usage: the plan of each month, the parties, and what it was computed from.

-- The plans that an app was put on; '' = on none from then on. The base fee of a month is that of the plan at its end.
CREATE TABLE IF NOT EXISTS app_plan (
    tenant TEXT   NOT NULL,
    since  BIGINT NOT NULL,
    plan   TEXT   NOT NULL,
    PRIMARY KEY (tenant, since)
) WITHOUT ROWID;

-- Name and address on invoices: of the app, which is the buyer, and of the seller (tenant ''), which is the platform.
CREATE TABLE IF NOT EXISTS invoice_party (
    tenant     TEXT   NOT NULL PRIMARY KEY,
    body       TEXT   NOT NULL, -- JSON
    updated_at BIGINT NOT NULL
) WITHOUT ROWID;

-- What an invoice was computed from. It outlives the app, as the invoice does.
CREATE TABLE IF NOT EXISTS invoice_basis (
    app      TEXT NOT NULL,
    id       TEXT NOT NULL, -- of the invoice
    replaces TEXT NOT NULL, -- the reversed invoice whose usage it charges again; '' = none
    sums     TEXT NOT NULL, -- the summed usage, JSON
    PRIMARY KEY (app, id)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS invoice_basis_update BEFORE UPDATE ON invoice_basis
BEGIN SELECT RAISE(ABORT, 'rows of invoice_basis are never changed'); END;
CREATE TRIGGER IF NOT EXISTS invoice_basis_delete BEFORE DELETE ON invoice_basis
BEGIN SELECT RAISE(ABORT, 'rows of invoice_basis are never changed'); END;
