-- Removes the approximate indexes over vectors.
DROP TABLE IF EXISTS vector_index;
ALTER TABLE document_live DROP COLUMN indexed_revision;
