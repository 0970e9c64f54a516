-- What was settled once for the whole platform, such as the name of its token issuer.
CREATE TABLE IF NOT EXISTS setting (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- The keys of the built-in token issuer. A generation is made once, whichever process comes first.
CREATE TABLE IF NOT EXISTS signing_key (
    generation  BIGINT PRIMARY KEY,
    id          TEXT   NOT NULL UNIQUE, -- the kid of its tokens
    seed        BYTEA  NOT NULL,        -- Ed25519, sealed with a master key
    master      TEXT   NOT NULL,        -- which one
    signs_from  BIGINT NOT NULL,        -- until the next generation's
    created_at  BIGINT NOT NULL
);

SELECT stoa_protect_platform('setting');
SELECT stoa_protect_platform('signing_key');
