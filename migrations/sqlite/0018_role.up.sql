-- The roles that an app has beside the built-in ones, all in one document, and how often they have changed.
CREATE TABLE IF NOT EXISTS app_role (
    tenant  TEXT   NOT NULL PRIMARY KEY,
    roles   TEXT   NOT NULL,
    version BIGINT NOT NULL
) WITHOUT ROWID;
