-- Removes the chunks of revisions that are not searchable, which the former version would keep, and what is known of them.
DELETE FROM chunk_vector WHERE (tenant, store, document, generation, revision) IN (SELECT tenant, store, document, generation, revision FROM hidden_revision);
DELETE FROM chunk WHERE (tenant, store, document, generation, revision) IN (SELECT tenant, store, document, generation, revision FROM hidden_revision);
DROP TABLE IF EXISTS hidden_revision;
