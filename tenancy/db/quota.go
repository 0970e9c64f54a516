package db

// Storing says what a batch adds to what its tenant stores.
type Storing int

// What a batch may add.
const (
	StoresNothing Storing = iota // it changes, ends or deletes what is there; it is never refused
	StoresEnd                    // few bytes, by which something ends; they are counted and never refused
	StoresMore                   // to something that was begun
	StoresNew                    // something new
)

// Quota bounds what tenants store in a database.
type Quota interface {
	// Admit counts bytes that the tenant is about to write, or returns why it may not write them. It is called before each
	// such write and does not wait.
	Admit(tenant ID, bytes int64, what Storing) error
}

// SetQuota has q asked before each batch that adds to what a tenant stores. It is called before the first of them.
func (d *DB) SetQuota(q Quota) { d.quota = q }

// admit asks the quota whether b may be written.
func (h *Handle) admit(b *Batch) error {
	if h.d.quota == nil || b.Stores == StoresNothing {
		return nil
	}
	return h.d.quota.Admit(h.tenant, b.size(), b.Stores)
}

// size returns how many bytes of text b brings. What it would bring in its shared form is the same.
func (b *Batch) size() (n int64) {
	for _, s := range b.stmts {
		n += sizeOf(s.args)
		for _, row := range s.rows {
			n += sizeOf(row)
		}
	}
	return n
}

func sizeOf(values []any) (n int64) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			n += int64(len(v))
		case []byte:
			n += int64(len(v))
		}
	}
	return n
}
