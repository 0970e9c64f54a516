-- Removes document stores with all documents, and brings the index of memories back.
DROP TABLE IF EXISTS index_app, index_pass, removed_chunk, chunk_vector, chunk, document_live, document_reader, document_body, document, document_store;
CREATE INDEX IF NOT EXISTS memory_lexemes ON memory USING gin (lexemes);
