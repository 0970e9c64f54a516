-- Exports of usage: how far each is, and which process carries it out. They bear the names that the settings give them.
CREATE TABLE IF NOT EXISTS export (
    name       TEXT    PRIMARY KEY,
    since      BIGINT  NOT NULL, -- usage that was recorded from then on is exported
    holder     TEXT    NOT NULL, -- the process
    until      BIGINT  NOT NULL, -- so long, unless it says so again
    batch      BIGINT  NOT NULL, -- the last one
    pending    BOOLEAN NOT NULL, -- it is under way: whoever comes next sends it again as it is
    rows       BIGINT  NOT NULL, -- that were acknowledged
    refused    BIGINT  NOT NULL, -- that the other side will never take
    error      TEXT    NOT NULL, -- of the last try, '' = it went well
    updated_at BIGINT  NOT NULL
) WITHOUT ROWID;

-- All of an app that was recorded before is exported, or never will be there to be seen.
CREATE TABLE IF NOT EXISTS export_cursor (
    tenant TEXT   NOT NULL,
    export TEXT   NOT NULL,
    sealed BIGINT NOT NULL,
    PRIMARY KEY (tenant, export)
) WITHOUT ROWID;

-- Which rows are in which batch, as far as they were recorded after the cursor.
CREATE TABLE IF NOT EXISTS usage_exported (
    tenant      TEXT   NOT NULL,
    export      TEXT   NOT NULL,
    task        TEXT   NOT NULL,
    key         TEXT   NOT NULL,
    batch       BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, export, task, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS usage_exported_batch ON usage_exported (export, batch);
