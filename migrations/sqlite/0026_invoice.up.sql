-- Invoices and credit notes. They are made once and never change; drafts are worked out and not kept.
CREATE TABLE IF NOT EXISTS invoice (
    app          TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    number       BIGINT NOT NULL,
    reverses     TEXT   NOT NULL, -- the invoice that a credit note takes back, '' = it is an invoice
    finalized_at BIGINT NOT NULL,
    body         TEXT   NOT NULL, -- all of it, as JSON
    PRIMARY KEY (app, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS invoice_number_key ON invoice (number);

-- The last number given: one row.
CREATE TABLE IF NOT EXISTS invoice_number (
    id   BIGINT PRIMARY KEY,
    last BIGINT NOT NULL
) WITHOUT ROWID;
INSERT INTO invoice_number (id, last) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;

CREATE TRIGGER IF NOT EXISTS invoice_update BEFORE UPDATE ON invoice
BEGIN SELECT RAISE(ABORT, 'rows of invoice are never changed'); END;

CREATE TRIGGER IF NOT EXISTS invoice_delete BEFORE DELETE ON invoice
BEGIN SELECT RAISE(ABORT, 'rows of invoice are never changed'); END;
