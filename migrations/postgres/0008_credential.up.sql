-- What users have entrusted to tools: the value of a header, which is sent to one server and shown to nobody.
CREATE TABLE IF NOT EXISTS credential (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    tool       TEXT   NOT NULL, -- by which the configuration names it
    header     TEXT   NOT NULL,
    server     TEXT   NOT NULL, -- its scheme, host and port
    value      TEXT   NOT NULL, -- sealed, in base64
    master_key TEXT   NOT NULL, -- that the value's own key is wrapped by
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, tool)
);
CREATE INDEX IF NOT EXISTS credential_master ON credential (master_key);

SELECT stoa_protect_tenant('credential');
