-- Removes the sums over documents and what writes them.
DROP INDEX IF EXISTS document_failed;
DROP INDEX IF EXISTS document_pending;
CREATE INDEX IF NOT EXISTS document_pending ON document (store, id, tenant) WHERE state = 'pending';
DROP TRIGGER IF EXISTS document_added;
DROP TRIGGER IF EXISTS document_removed;
DROP TRIGGER IF EXISTS document_body_added;
DROP TRIGGER IF EXISTS document_body_removed;
DROP TRIGGER IF EXISTS document_body_changed;
DROP TRIGGER IF EXISTS document_live_added;
DROP TRIGGER IF EXISTS document_live_removed;
DROP TRIGGER IF EXISTS document_live_changed;
DROP TABLE IF EXISTS document_total;
