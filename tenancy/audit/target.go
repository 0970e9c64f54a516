package audit

import (
	"context"

	"stoa/tenancy/db"
)

// Target is where the audit entries about changes of a tenant's rows are written: the database of these rows, or
// another one, where the rows may end with the process and the audit trail must not.
type Target struct {
	tenant   db.ID
	external *db.Handle // nil = the database of the rows
}

// NewTarget returns the target in the database of the tenant's rows.
func NewTarget(tenant db.ID) Target { return Target{tenant: tenant} }

// In returns the target in d.
func (t Target) In(d *db.DB) Target {
	t.external = d.Tenant(t.tenant)
	return t
}

// Write makes write, which executes b, take effect together with entries. In the same database they become
// statements of b, each conditional on condition, whose parameters args are numbered from $10. In another database
// they are written in a transaction there that stays open during write: entries and change can differ only if that
// transaction's commit fails after write succeeded.
func (t Target) Write(ctx context.Context, b *db.Batch, entries []Entry, condition string, args []any, write func() error) error {
	for i := range entries {
		entries[i].AppID = t.tenant
	}
	if t.external == nil || len(entries) == 0 {
		for _, e := range entries {
			if err := Queue(ctx, b, e, condition, args...); err != nil {
				return err
			}
		}
		return write()
	}
	return t.external.RunTx(ctx, func(tx *db.Tx) error {
		for _, e := range entries {
			if err := Insert(ctx, tx, e); err != nil {
				return err
			}
		}
		return write()
	})
}
