-- Removes the chunks of revisions that are not searchable, which the former version would keep, and what is known of them.
-- Row-level security is not in force meanwhile, because the owner of the tables is no tenant.
ALTER TABLE hidden_revision NO FORCE ROW LEVEL SECURITY;
ALTER TABLE chunk_vector NO FORCE ROW LEVEL SECURITY;
ALTER TABLE chunk NO FORCE ROW LEVEL SECURITY;
DELETE FROM chunk_vector c USING hidden_revision h
    WHERE c.tenant = h.tenant AND c.store = h.store AND c.document = h.document AND c.generation = h.generation AND c.revision = h.revision;
DELETE FROM chunk c USING hidden_revision h
    WHERE c.tenant = h.tenant AND c.store = h.store AND c.document = h.document AND c.generation = h.generation AND c.revision = h.revision;
ALTER TABLE chunk_vector FORCE ROW LEVEL SECURITY;
ALTER TABLE chunk FORCE ROW LEVEL SECURITY;
DROP TABLE IF EXISTS hidden_revision;
