package server

import (
	"context"
	"log/slog"
	"time"

	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// sealedColumns are the columns that name the master key of each row, by table. [TestSealedColumns] compares them with
// the schema.
var sealedColumns = []sealedColumn{
	{"app", "master_key"}, {"audit_head", "master_key"}, {"credential", "master_key"}, {"receiver", "master_key"}, {"signing_key", "master"},
}

// sealedColumn is a column with the id of the master key that encrypts its row.
type sealedColumn struct{ table, column string }

// KeyUsage is how many rows of a table are encrypted with which master key.
type KeyUsage struct {
	Table   string `json:"table"`
	Current int64  `json:"current"` // with the first key of STOA_MASTER_KEY
	Former  int64  `json:"former"`  // with another one of it
	// Unknown counts rows with a key that STOA_MASTER_KEY does not have: they cannot be read.
	Unknown int64 `json:"unknown"`
}

// CountKeyUsage counts the rows of d by the master key that encrypts them, table by table.
func CountKeyUsage(ctx context.Context, d *db.DB, keys *keyring.Keyring) ([]KeyUsage, error) {
	former := map[string]bool{}
	for _, id := range keys.FormerKeyIDs() {
		former[id] = true
	}
	all := make([]KeyUsage, len(sealedColumns))
	var b db.Batch
	for i, s := range sealedColumns {
		all[i].Table = s.table
		b.Query(func(r db.Row) error {
			var id string
			var n int64
			err := r.Scan(&id, &n)
			switch {
			case id == keys.CurrentKeyID():
				all[i].Current = n
			case former[id]:
				all[i].Former += n
			default:
				all[i].Unknown += n
			}
			return err
		}, "SELECT "+s.column+", COUNT(*) FROM "+s.table+" GROUP BY "+s.column)
	}
	return all, d.Platform().Do(ctx, &b)
}

// OpenKeyring returns the keyring of the master keys that the environment has, or the file next to a SQLite database.
// It returns an error, and generates none, if d has rows under a master key and there is no key.
func OpenKeyring(ctx context.Context, d *db.DB, database string) (*keyring.Keyring, error) {
	s, err := loadSecrets(ctx, d, database)
	if err != nil {
		return nil, err
	}
	return s.openKeyring()
}

// keyWatchInterval is how often a process with former master keys looks whether they are still needed.
const keyWatchInterval = time.Minute

// watchFormerKeys logs how many rows are encrypted with former master keys, and when none is any more. It returns at
// once if there is no former key. Another process, started with the former key first, may write further rows under it;
// then both lines are repeated. The audit trail gets the same, see recordKeyChange.
func watchFormerKeys(ctx context.Context, d *db.DB, keys *keyring.Keyring, trail *audit.Trail, log *slog.Logger) error {
	if len(keys.FormerKeyIDs()) == 0 {
		return nil
	}
	tick := time.NewTicker(keyWatchInterval)
	defer tick.Stop()
	for before := int64(-1); ; {
		all, err := CountKeyUsage(ctx, d, keys)
		rows := int64(0)
		for _, u := range all {
			rows += u.Former
		}
		// A process that has served with the former key first does not record that others began with the new one.
		if err == nil && (before < 0 || rows == 0 && before > 0) {
			err = recordKeyChange(ctx, trail, keys, rows)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			log.WarnContext(ctx, "the use of former master keys could not be determined", "error", err)
		case err == nil && rows == 0 && before != 0:
			log.InfoContext(ctx, "no row is encrypted with a former master key: once every process has the new key first, the former one may be removed from "+MasterKeyName)
		case err == nil && rows > 0 && before <= 0:
			log.InfoContext(ctx, "rows are encrypted with a former master key and are being encrypted again: keep it in "+MasterKeyName, "rows", rows)
		}
		if err == nil {
			before = rows
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Actions of the audit trail: the first master key encrypts and rows under former ones are encrypted again; no row needs a
// former one.
const (
	actionKeyChange   = "master_key.change"
	actionKeyComplete = "master_key.complete"
)

// recordKeyChange adds an entry to the audit trail if its last one about master keys does not say yet that the present
// first key encrypts, or that the former ones are not needed. rows are the rows under these. Two processes that start at
// the same time may both add it.
func recordKeyChange(ctx context.Context, trail *audit.Trail, keys *keyring.Keyring, rows int64) error {
	entries, _, err := trail.List(ctx, audit.Query{Size: 1, Filter: audit.Filter{Action: "master_key"}})
	if err != nil {
		return err
	}
	last := audit.Entry{}
	if len(entries) > 0 {
		last = entries[0]
	}
	action, isSame := actionKeyChange, last.Detail["master_key"] == keys.CurrentKeyID()
	switch {
	case rows > 0 && isSame && last.Action == actionKeyChange, rows == 0 && (!isSame || last.Action == actionKeyComplete):
		return nil
	case rows == 0:
		action = actionKeyComplete
	}
	return trail.Record(ctx, audit.Entry{Actor: audit.System, Action: action, Detail: map[string]any{"master_key": keys.CurrentKeyID(), "former": keys.FormerKeyIDs()}})
}
