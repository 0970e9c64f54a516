-- The keys with which programs call an app. Nobody can read a key from here: it is found by the part of it that is its
-- id, and known by the hash of the whole.
CREATE TABLE IF NOT EXISTS api_key (
    tenant       TEXT   NOT NULL,
    id           TEXT   COLLATE "C" NOT NULL,
    name         TEXT   NOT NULL,
    hash         BYTEA  NOT NULL,
    former       BYTEA  NOT NULL, -- hash of the one before the last rotation, good as well
    former_until BIGINT NOT NULL, -- until then; 0 = there is none
    roles        TEXT   NOT NULL,
    scope        TEXT   NOT NULL,
    actor        TEXT   NOT NULL, -- who made it
    created_at   BIGINT NOT NULL,
    rotated_at   BIGINT NOT NULL, -- 0 = never
    expires_at   BIGINT NOT NULL, -- 0 = never
    last_used_at BIGINT NOT NULL, -- to the minute; 0 = never
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS api_key_id ON api_key (id);

SELECT stoa_protect_tenant('api_key');
