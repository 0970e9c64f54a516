-- The key sets of token issuers as any process fetched them last. Before, they were rows of the table setting: the time of the
-- fetch in 16 digits, a space, and the document.
CREATE TABLE IF NOT EXISTS jwks (
    url_hash   TEXT   PRIMARY KEY, -- SHA-256 of the address, in hex
    document   TEXT   NOT NULL,    -- a JSON Web Key Set with the public keys alone
    fetched_at BIGINT NOT NULL
);
INSERT INTO jwks (url_hash, document, fetched_at)
SELECT substr(name, 13), substr(value, 18), CAST(substr(value, 1, 16) AS BIGINT) FROM setting WHERE name LIKE 'issuer_keys:%'
ON CONFLICT DO NOTHING;
DELETE FROM setting WHERE name LIKE 'issuer_keys:%';
