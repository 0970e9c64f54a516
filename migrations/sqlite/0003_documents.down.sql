-- Removes document stores with all documents.
DROP TABLE IF EXISTS index_app;
DROP TABLE IF EXISTS index_pass;
DROP TABLE IF EXISTS removed_chunk;
DROP TABLE IF EXISTS chunk_vector;
DROP TABLE IF EXISTS chunk_words;
DROP TABLE IF EXISTS chunk;
DROP TABLE IF EXISTS document_live;
DROP TABLE IF EXISTS document_reader;
DROP TABLE IF EXISTS document_body;
DROP TABLE IF EXISTS document;
DROP TABLE IF EXISTS document_store;
