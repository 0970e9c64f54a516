-- What was found wrong with the chains of the audit trail.
CREATE TABLE IF NOT EXISTS audit_flaw (
    app_id   TEXT   NOT NULL, -- whose chain; '*' = about their number
    seq      BIGINT NOT NULL, -- of the entry; 0 = about the chain as a whole
    flaw     TEXT   NOT NULL,
    app      TEXT   NOT NULL,
    entry    TEXT   NOT NULL,
    found_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, seq, flaw)
);
SELECT stoa_protect_platform('audit_flaw');
