package db

// StorageKind says what a batch adds to what its tenant stores.
type StorageKind int

// What a batch may add.
const (
	StoresNothing StorageKind = iota // it changes, ends or deletes what is there; it is never refused
	StoresEnd                        // few bytes, by which something ends; they are counted and never refused
	StoresMore                       // to something that was begun
	StoresNew                        // something new
)

// Quota bounds what tenants store in a database.
type Quota interface {
	// AllowWrite counts bytes that the tenant is about to write, or returns why it may not write them. It is called before each
	// such write and does not wait.
	AllowWrite(tenant ID, bytes int64, what StorageKind) error
}

// SetQuota has q asked before each batch that adds to what a tenant stores. It is called before the first of them.
func (d *DB) SetQuota(q Quota) { d.quota = q }

// checkQuota asks the quota whether b may be written.
func (h *Handle) checkQuota(b *Batch) error {
	if h.d.quota == nil || b.StorageKind == StoresNothing {
		return nil
	}
	return h.d.quota.AllowWrite(h.tenant, b.payloadSize(), b.StorageKind)
}

// payloadSize returns how many bytes of text b brings. What it would bring in its shared form is the same.
func (b *Batch) payloadSize() (n int64) {
	for _, s := range b.stmts {
		n += argsSize(s.args)
		for _, row := range s.rows {
			n += argsSize(row)
		}
	}
	return n
}

func argsSize(values []any) (n int64) {
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
