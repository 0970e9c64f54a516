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
);

SELECT stoa_protect_platform('credit');
REVOKE UPDATE, DELETE ON credit FROM stoa_platform;
