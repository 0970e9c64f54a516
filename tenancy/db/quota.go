package db

// StorageKind says what a batch adds to the data that its tenant stores.
type StorageKind int

// The kinds of storage, from the one a quota must not refuse to the one it refuses first.
const (
	// StoresNothing changes or deletes rows that exist. It is never counted or refused.
	StoresNothing StorageKind = iota
	// StoresEnd adds the few bytes with which something ends. A quota counts them and should let them pass, so that a
	// tenant at its limit still ends its tasks properly.
	StoresEnd
	// StoresMore adds to something that was begun.
	StoresMore
	// StoresNew begins something new.
	StoresNew
)

// Quota bounds the data that tenants store in a database.
type Quota interface {
	// AllowWrite counts bytes that the tenant is about to write, or returns the error with which the write is refused.
	// It is called before each such write and must not block.
	AllowWrite(tenant ID, bytes int64, what StorageKind) error
}

// SetQuota makes d ask q before each batch that adds data. It must be called before the first such batch.
func (d *DB) SetQuota(q Quota) { d.quota = q }

// checkQuota returns the quota's error if b may not be written.
func (h *Handle) checkQuota(b *Batch) error {
	if h.d.quota == nil || b.StorageKind == StoresNothing {
		return nil
	}
	return h.d.quota.AllowWrite(h.tenant, b.payloadSize(), b.StorageKind)
}

// CheckQuota counts bytes that a transaction of [Handle.RunTx] is about to write, or returns the [Quota]'s error. Batches are
// checked by themselves.
func (h *Handle) CheckQuota(bytes int64, kind StorageKind) error {
	if h.d.quota == nil || kind == StoresNothing {
		return nil
	}
	return h.d.quota.AllowWrite(h.tenant, bytes, kind)
}

// payloadSize returns the bytes of text in the arguments of b. The shared form has the same arguments and is not
// counted.
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
