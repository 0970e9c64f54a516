package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	all := make([]KeyUsage, len(sealedColumns))
	counts, err := countRowsByKey(ctx, d)
	for i, s := range sealedColumns {
		all[i].Table = s.table
		for id, n := range counts[i] {
			switch {
			case id == keys.CurrentKeyID():
				all[i].Current += n
			case keys.HasKey(id):
				all[i].Former += n
			default:
				all[i].Unknown += n
			}
		}
	}
	return all, err
}

// ListMissingKeys returns the ids of the master keys that rows of d need and keys lacks, in order.
func ListMissingKeys(ctx context.Context, d *db.DB, keys *keyring.Keyring) ([]string, error) {
	counts, err := countRowsByKey(ctx, d)
	var ids []string
	for _, table := range counts {
		for id := range table {
			if !keys.HasKey(id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// countRowsByKey counts the rows of each table of sealedColumns by the id of their master key.
func countRowsByKey(ctx context.Context, d *db.DB) ([]map[string]int64, error) {
	counts := make([]map[string]int64, len(sealedColumns))
	var b db.Batch
	for i, s := range sealedColumns {
		counts[i] = map[string]int64{}
		b.Query(func(r db.Row) error {
			var id string
			var n int64
			err := r.Scan(&id, &n)
			counts[i][id] = n
			return err
		}, "SELECT "+s.column+", COUNT(*) FROM "+s.table+" GROUP BY "+s.column)
	}
	return counts, d.Platform().Do(ctx, &b)
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

// ListMasterKeys returns the ids of the master keys that encrypt rows of a database, in order.
func ListMasterKeys(ctx context.Context, s *sql.DB) ([]string, error) {
	ids := []string{}
	for _, column := range sealedColumns {
		rows, err := s.QueryContext(ctx, "SELECT DISTINCT "+column.column+" FROM "+column.table) //nolint:gosec // the names are constants
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			ids = append(ids, id)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// keyWatchInterval is how often a process with former master keys looks whether they are still needed.
const keyWatchInterval = time.Minute

// watchFormerKeys logs how many rows are encrypted with former master keys, and when none is any more; of keys that have
// never been the first one, that they are accepted. It returns at once if there is one key. Another process, started with
// the former key first, may write further rows under it; then both lines are repeated. The audit trail gets the same, see
// recordKeyChange.
func watchFormerKeys(ctx context.Context, d *db.DB, keys *keyring.Keyring, trail *audit.Trail, log *slog.Logger) error {
	if len(keys.FormerKeyIDs()) == 0 {
		return nil
	}
	tick := time.NewTicker(keyWatchInterval)
	defer tick.Stop()
	for before := int64(-1); ; {
		former, err := ReadFormerKeys(ctx, d, keys, trail)
		// A process that has served with the former key first does not record that others began with the new one.
		if err == nil && (before < 0 || former.Rows == 0 && before > 0) {
			err = former.record(ctx, trail, keys)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			log.WarnContext(ctx, "the use of former master keys could not be determined", "error", err)
		case err == nil && former.Rows == 0 && before != 0 && len(former.Replaced) == 0:
			log.InfoContext(ctx, "no row is encrypted with the master keys behind the first one, which have not been the first yet: once every process has them, put the new one first in "+MasterKeyName, "keys", former.Accepted)
		case err == nil && former.Rows == 0 && before != 0:
			log.InfoContext(ctx, "no row is encrypted with a former master key: once every process has the new key first, the former one may be removed from "+MasterKeyName, "former", former.Replaced)
		case err == nil && former.Rows > 0 && before <= 0:
			log.InfoContext(ctx, "rows are encrypted with a former master key and are being encrypted again: keep it in "+MasterKeyName, "rows", former.Rows, "former", former.Replaced)
		}
		if err == nil {
			before = former.Rows
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// FormerKeys are the ids of the master keys of a process behind its first one.
type FormerKeys struct {
	// Replaced have encrypted before the first one did: there are rows under them, or the audit trail has the change.
	// Accepted have not been first yet, as in step 1 of the change of the master key.
	Replaced, Accepted []string
	// Rows are the rows under Replaced.
	Rows int64
	// last is the last entry of the audit trail about master keys, zero if there is none.
	last audit.Entry
}

// ReadFormerKeys reads the state of the master keys behind the first one from the rows and the audit trail.
func ReadFormerKeys(ctx context.Context, d *db.DB, keys *keyring.Keyring, trail *audit.Trail) (FormerKeys, error) {
	var f FormerKeys
	counts, err := countRowsByKey(ctx, d)
	if err != nil {
		return f, err
	}
	entries, _, err := trail.List(ctx, audit.Query{Size: 1, Filter: audit.Filter{Action: "master_key"}})
	if err != nil {
		return f, err
	}
	if len(entries) > 0 {
		f.last = entries[0]
	}
	var recorded []any
	if f.last.Detail["master_key"] == keys.CurrentKeyID() {
		recorded, _ = f.last.Detail["former"].([]any)
	}
	for _, id := range keys.FormerKeyIDs() {
		rows := int64(0)
		for _, table := range counts {
			rows += table[id]
		}
		f.Rows += rows
		if rows > 0 || slices.Contains(recorded, any(id)) {
			f.Replaced = append(f.Replaced, id)
		} else {
			f.Accepted = append(f.Accepted, id)
		}
	}
	return f, nil
}

// Actions of the audit trail: the first master key encrypts and rows under former ones are encrypted again; no row needs a
// former one.
const (
	actionKeyChange   = "master_key.change"
	actionKeyComplete = "master_key.complete"
)

// record adds an entry to the audit trail if its last one about master keys does not say yet that the present first key
// encrypts, or that the former ones are not needed. Two processes that start at the same time may both add it.
func (f FormerKeys) record(ctx context.Context, trail *audit.Trail, keys *keyring.Keyring) error {
	action, isSame := actionKeyChange, f.last.Detail["master_key"] == keys.CurrentKeyID()
	switch {
	case f.Rows > 0 && isSame && f.last.Action == actionKeyChange, f.Rows == 0 && (!isSame || f.last.Action == actionKeyComplete):
		return nil
	case f.Rows == 0 && len(f.Replaced) == 0:
		return nil
	case f.Rows == 0:
		action = actionKeyComplete
	}
	return trail.Record(ctx, audit.Entry{Actor: audit.System, Action: action, Detail: map[string]any{"master_key": keys.CurrentKeyID(), "former": f.Replaced}})
}

// recordRemoval records that the change to the only master key is complete if the processes with both keys ended before
// one of them saw that no row is under a former key: the operator may remove that as soon as stoa secrets status counts
// none.
func (f FormerKeys) recordRemoval(ctx context.Context, d *db.DB, trail *audit.Trail, keys *keyring.Keyring) error {
	if f.last.Action != actionKeyChange || f.last.Detail["master_key"] != keys.CurrentKeyID() {
		return nil
	}
	usage, err := CountKeyUsage(ctx, d, keys)
	if err != nil {
		return err
	}
	for _, table := range usage {
		if table.Unknown > 0 {
			return nil
		}
	}
	return trail.Record(ctx, audit.Entry{Actor: audit.System, Action: actionKeyComplete, Detail: map[string]any{"master_key": keys.CurrentKeyID(), "former": f.last.Detail["former"]}})
}

// recordKeyChange records in the audit trail that the first master key has changed, or that a change is complete whose
// former key the process no longer has. A process calls it before anything in it encrypts rows again, since the rows
// under the former key are what shows the change.
func recordKeyChange(ctx context.Context, d *db.DB, keys *keyring.Keyring, trail *audit.Trail) error {
	former, err := ReadFormerKeys(ctx, d, keys, trail)
	switch {
	case err != nil:
	case len(keys.FormerKeyIDs()) == 0:
		err = former.recordRemoval(ctx, d, trail, keys)
	default:
		err = former.record(ctx, trail, keys)
	}
	if err != nil {
		return fmt.Errorf("record the change of the master key in the audit trail: %w", err)
	}
	return nil
}
