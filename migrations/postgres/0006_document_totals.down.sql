-- Removes the sums over documents and what writes them.
DROP INDEX IF EXISTS document_failed;
DROP INDEX IF EXISTS document_pending;
CREATE INDEX IF NOT EXISTS document_pending ON document (store, id, tenant) WHERE state = 'pending';
DROP TRIGGER IF EXISTS document_added ON document;
DROP TRIGGER IF EXISTS document_removed ON document;
DROP TRIGGER IF EXISTS document_body_added ON document_body;
DROP TRIGGER IF EXISTS document_body_removed ON document_body;
DROP TRIGGER IF EXISTS document_body_changed ON document_body;
DROP TRIGGER IF EXISTS document_live_added ON document_live;
DROP TRIGGER IF EXISTS document_live_removed ON document_live;
DROP TRIGGER IF EXISTS document_live_changed ON document_live;
DROP FUNCTION IF EXISTS stoa_add_documents, stoa_remove_documents, stoa_add_bodies, stoa_remove_bodies, stoa_change_bodies, stoa_add_live, stoa_remove_live, stoa_change_live;
DROP TABLE IF EXISTS document_total;
