package store

import (
	"context"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// auditTarget is where a tenant's audit entries are written.
type auditTarget struct {
	tenant   db.ID
	external *db.Handle // nil = the database of the tasks
}

// writeWithAudit makes write, which executes b, take effect together with entries. In the same database they become
// statements of b, each conditional on condition, whose parameters args are numbered from $10. In another database
// they are written in a transaction there that stays open during write: entries and change can differ only if that
// transaction's commit fails after write succeeded.
func (a auditTarget) writeWithAudit(ctx context.Context, b *db.Batch, entries []audit.Entry, condition string, args []any, write func() error) error {
	for i := range entries {
		entries[i].AppID = a.tenant
	}
	if a.external == nil || len(entries) == 0 {
		for _, e := range entries {
			if err := audit.Queue(ctx, b, e, condition, args...); err != nil {
				return err
			}
		}
		return write()
	}
	return a.external.RunTx(ctx, func(tx *db.Tx) error {
		for _, e := range entries {
			if err := audit.Insert(ctx, tx, e); err != nil {
				return err
			}
		}
		return write()
	})
}

// writeTaskWithAudit is writeWithAudit for a step of a task: entries are written only if the task is at g.
func (s *Store) writeTaskWithAudit(ctx context.Context, b *db.Batch, id agentsvc.TaskID, g *precondition, entries []audit.Entry, write func() error) error {
	return s.audit.writeWithAudit(ctx, b, entries, `EXISTS (SELECT 1 FROM task WHERE tenant = $10 AND id = $11 AND epoch = $12 AND seq = $13)`,
		[]any{s.tenant, string(id), g.epoch, g.seq}, write)
}

// WithAuditIn returns a store of the same tasks whose audit entries are written to d: the tasks' database may end
// with the process, the audit trail must not.
func (s *Store) WithAuditIn(d *db.DB) *Store {
	other := *s
	other.audit.external = d.Tenant(s.audit.tenant)
	return &other
}

// WithAuditIn returns a vault of the same credentials whose audit entries are written to d.
func (v *Vault) WithAuditIn(d *db.DB) *Vault {
	other := *v
	other.audit.external = d.Tenant(v.audit.tenant)
	return &other
}
