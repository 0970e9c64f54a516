-- What apps were granted to pay with. What is left of a grant the ledger tells.
CREATE TABLE IF NOT EXISTS credit (
    app        TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    amount     BIGINT NOT NULL,
    currency   TEXT   NOT NULL,
    expires_at BIGINT NOT NULL, -- 0 = never
    note       TEXT   NOT NULL,
    actor      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (app, id)
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS credit_update BEFORE UPDATE ON credit
BEGIN SELECT RAISE(ABORT, 'rows of credit are never changed'); END;

CREATE TRIGGER IF NOT EXISTS credit_delete BEFORE DELETE ON credit
BEGIN SELECT RAISE(ABORT, 'rows of credit are never changed'); END;
