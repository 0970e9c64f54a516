-- Approximate indexes over the vectors of large document stores. They are of PostgreSQL alone: this engine has none, and the
-- statements that both execute find no row.

ALTER TABLE document_live ADD COLUMN indexed_revision BIGINT NOT NULL DEFAULT 0; -- whose vectors are in the index; 0 = none

CREATE TABLE IF NOT EXISTS vector_index (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL,
    generation BIGINT NOT NULL,
    id         TEXT   NOT NULL,
    dimensions BIGINT NOT NULL,
    PRIMARY KEY (tenant, store, generation)
) WITHOUT ROWID;
