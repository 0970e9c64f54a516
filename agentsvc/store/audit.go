package store

import (
	"context"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// auditTarget is where a tenant's audit entries go: beside what they tell of, or elsewhere.
type auditTarget struct {
	tenant   db.ID
	external *db.Handle // nil = beside
}

// writeWithAudit has write, which executes b, take effect together with entries. Beside each other they are one batch: entries are
// added to b, where condition holds, whose parameters are numbered from $10. Elsewhere a transaction there goes around
// write, so that an entry without its fact, or a fact without its entry, takes the failure of that last commit.
func (a auditTarget) writeWithAudit(ctx context.Context, b *db.Batch, entries []tenancy.AuditEntry, condition string, args []any, write func() error) error {
	for i := range entries {
		entries[i].AppID = a.tenant
	}
	if a.external == nil || len(entries) == 0 {
		for _, e := range entries {
			if err := tenancy.QueueAuditEntry(ctx, b, e, condition, args...); err != nil {
				return err
			}
		}
		return write()
	}
	return a.external.RunTx(ctx, func(tx *db.Tx) error {
		for _, e := range entries {
			if err := tenancy.InsertAuditEntry(ctx, tx, e); err != nil {
				return err
			}
		}
		return write()
	})
}

// writeTaskWithAudit is audit.noted for a step of a task, if it stands at g.
func (s *Store) writeTaskWithAudit(ctx context.Context, b *db.Batch, id agentsvc.TaskID, g *precondition, entries []tenancy.AuditEntry, write func() error) error {
	return s.audit.writeWithAudit(ctx, b, entries, `EXISTS (SELECT 1 FROM task WHERE tenant = $10 AND id = $11 AND epoch = $12 AND seq = $13)`,
		[]any{s.tenant, string(id), g.epoch, g.seq}, write)
}

// WithAuditIn returns a store of the same tasks whose audit entries go into d: tasks may end with the process, the trail does
// not.
func (s *Store) WithAuditIn(d *db.DB) *Store {
	other := *s
	other.audit.external = d.Tenant(s.audit.tenant)
	return &other
}

// WithAuditIn does for a vault what [Store.WithAuditIn] does for tasks.
func (v *Vault) WithAuditIn(d *db.DB) *Vault {
	other := *v
	other.audit.external = d.Tenant(v.audit.tenant)
	return &other
}
