-- What an invoice needs besides usage: the plan of each month, the parties, and what it was computed from.

-- The plans that an app was put on; '' = on none from then on. The base fee of a month is that of the plan at its end.
CREATE TABLE IF NOT EXISTS app_plan (
    tenant TEXT   NOT NULL,
    since  BIGINT NOT NULL,
    plan   TEXT   NOT NULL,
    PRIMARY KEY (tenant, since)
);
SELECT stoa_protect_tenant('app_plan');

-- Name and address on invoices: of the app, which is the buyer, and of the seller (tenant ''), which is the platform.
CREATE TABLE IF NOT EXISTS invoice_party (
    tenant     TEXT   NOT NULL PRIMARY KEY,
    body       TEXT   NOT NULL, -- JSON
    updated_at BIGINT NOT NULL
);
SELECT stoa_protect_tenant('invoice_party');

-- What an invoice was computed from. It outlives the app, as the invoice does.
CREATE TABLE IF NOT EXISTS invoice_basis (
    app      TEXT NOT NULL,
    id       TEXT NOT NULL, -- of the invoice
    replaces TEXT NOT NULL, -- the reversed invoice whose usage it charges again; '' = none
    sums     TEXT NOT NULL, -- the summed usage, JSON
    PRIMARY KEY (app, id)
);
SELECT stoa_protect_platform('invoice_basis');
REVOKE UPDATE, DELETE ON invoice_basis FROM stoa_platform;
-- An app reads which of its invoices replaces another.
GRANT SELECT ON invoice_basis TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON invoice_basis;
CREATE POLICY tenant ON invoice_basis FOR SELECT TO stoa_tenant USING (app = stoa_tenant());
