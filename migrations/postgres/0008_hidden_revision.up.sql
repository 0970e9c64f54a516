-- Large documents are written and deleted in several transactions.

-- Revisions of documents that are not searchable and may have chunks: those that are being written, and those that were
-- replaced or deleted and whose chunks have not all been deleted. Who writes or hides chunks in several transactions has the
-- row before, so that what a crash leaves is found.
CREATE TABLE IF NOT EXISTS hidden_revision (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL COLLATE "C",
    document   TEXT   NOT NULL COLLATE "C",
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    collection TEXT   NOT NULL, -- of the external vector store that has vectors of it; '' = none
    PRIMARY KEY (tenant, store, document, generation, revision)
);
SELECT stoa_protect_tenant('hidden_revision');
