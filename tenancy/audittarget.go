package tenancy

import (
	"context"

	"stoa/tenancy/db"
)

// AuditTarget is where the audit entries about changes of a tenant's rows are written: the database of these rows, or
// another one, where the rows may end with the process and the audit trail must not.
type AuditTarget struct {
	tenant   db.ID
	external *db.Handle // nil = the database of the rows
}

// NewAuditTarget returns the target in the database of the tenant's rows.
func NewAuditTarget(tenant db.ID) AuditTarget { return AuditTarget{tenant: tenant} }

// In returns the target in d.
func (a AuditTarget) In(d *db.DB) AuditTarget {
	a.external = d.Tenant(a.tenant)
	return a
}

// Write makes write, which executes b, take effect together with entries. In the same database they become
// statements of b, each conditional on condition, whose parameters args are numbered from $10. In another database
// they are written in a transaction there that stays open during write: entries and change can differ only if that
// transaction's commit fails after write succeeded.
func (a AuditTarget) Write(ctx context.Context, b *db.Batch, entries []AuditEntry, condition string, args []any, write func() error) error {
	for i := range entries {
		entries[i].AppID = a.tenant
	}
	if a.external == nil || len(entries) == 0 {
		for _, e := range entries {
			if err := QueueAuditEntry(ctx, b, e, condition, args...); err != nil {
				return err
			}
		}
		return write()
	}
	return a.external.RunTx(ctx, func(tx *db.Tx) error {
		for _, e := range entries {
			if err := InsertAuditEntry(ctx, tx, e); err != nil {
				return err
			}
		}
		return write()
	})
}
