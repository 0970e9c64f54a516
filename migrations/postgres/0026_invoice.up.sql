-- Invoices and credit notes. They are made once and never change; drafts are worked out and not kept.
CREATE TABLE IF NOT EXISTS invoice (
    app          TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    number       BIGINT NOT NULL,
    reverses     TEXT   NOT NULL, -- the invoice that a credit note takes back, '' = it is an invoice
    finalized_at BIGINT NOT NULL,
    body         TEXT   NOT NULL, -- all of it, as JSON
    PRIMARY KEY (app, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS invoice_number_key ON invoice (number);

-- The last number given: one row.
CREATE TABLE IF NOT EXISTS invoice_number (
    id   BIGINT PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO invoice_number (id, last) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;

SELECT stoa_protect_platform('invoice');
SELECT stoa_protect_platform('invoice_number');
REVOKE UPDATE, DELETE ON invoice FROM stoa_platform;
-- An app reads its own.
GRANT SELECT ON invoice TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON invoice;
CREATE POLICY tenant ON invoice FOR SELECT TO stoa_tenant USING (app = stoa_tenant());
