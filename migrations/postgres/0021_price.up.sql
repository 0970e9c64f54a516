-- The price book: versions, which never change. Of those of a currency the one that came into force last holds.
CREATE TABLE IF NOT EXISTS price (
    version        TEXT   PRIMARY KEY,
    currency       TEXT   NOT NULL,
    effective_from BIGINT NOT NULL,
    items          TEXT   NOT NULL,
    created_at     BIGINT NOT NULL
);

-- What apps can be put on. What the queue goes by has columns of its own; 0 = the plan says nothing.
CREATE TABLE IF NOT EXISTS plan (
    name                 TEXT   PRIMARY KEY,
    terms                TEXT   NOT NULL, -- all of it, as JSON
    weight               BIGINT NOT NULL,
    max_concurrent_tasks BIGINT NOT NULL,
    queue_depth          BIGINT NOT NULL,
    created_at           BIGINT NOT NULL,
    updated_at           BIGINT NOT NULL
);

SELECT stoa_protect_platform('price');
SELECT stoa_protect_platform('plan');
-- An app reads its own limits, and so its plan's.
GRANT SELECT ON plan TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON plan;
CREATE POLICY tenant ON plan FOR SELECT TO stoa_tenant USING (name IN (SELECT plan FROM app WHERE app.tenant = stoa_tenant()));
