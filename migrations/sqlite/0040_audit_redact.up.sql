-- Chains of the audit trail whose entries hold configurations, names shown to people, labels and plain hashes of arguments, as
-- earlier versions wrote them. The server puts keyed hashes in their place, one chain after the other, and removes the row.
CREATE TABLE IF NOT EXISTS audit_redact (app_id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
INSERT INTO audit_redact (app_id)
SELECT DISTINCT app_id FROM audit
WHERE action IN ('app.create', 'app.update', 'app.restore', 'config.load') OR action LIKE 'app.role.%' OR action LIKE 'approval.%' OR action LIKE 'notification.%'
ON CONFLICT DO NOTHING;
