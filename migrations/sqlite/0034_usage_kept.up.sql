-- Usage is added and never changed; it goes with its app alone.
CREATE TRIGGER IF NOT EXISTS usage_update BEFORE UPDATE ON usage
BEGIN SELECT RAISE(ABORT, 'rows of usage are never changed'); END;

CREATE TRIGGER IF NOT EXISTS usage_delete BEFORE DELETE ON usage
WHEN OLD.tenant = 'default' OR EXISTS (SELECT 1 FROM app WHERE tenant = OLD.tenant AND status <> 'deleting')
BEGIN SELECT RAISE(ABORT, 'rows of usage are deleted with their app alone'); END;
