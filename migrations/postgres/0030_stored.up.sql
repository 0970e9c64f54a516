-- How many bytes an app kept in an hour, measured once in it. When a day is over its hours become one usage row.
CREATE TABLE IF NOT EXISTS stored_sample (
    tenant TEXT   NOT NULL,
    hour   BIGINT NOT NULL, -- since the epoch
    bytes  BIGINT NOT NULL,
    PRIMARY KEY (tenant, hour)
);

SELECT stoa_protect_tenant('stored_sample');
