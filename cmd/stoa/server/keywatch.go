package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// servingColumns are those of sealedColumns without whose values a process cannot serve. The others are values of users,
// who are asked for them again if one cannot be decrypted.
var servingColumns = []sealedColumn{{"app", "master_key"}, {"audit_head", "master_key"}, {"signing_key", "master"}}

// missingKeyInterval is how often a process looks for rows that it cannot decrypt.
const missingKeyInterval = 5 * time.Second

// keyWatch reports rows under master keys that this process lacks, which another process has written.
type keyWatch struct {
	db   *db.DB
	keys *keyring.Keyring
	// source is where the master keys come from, for messages; see processSecrets.
	source string
	log    *slog.Logger
	// missing is the error of the last look, nil before it and while no key is missing. Written by check.
	missing atomic.Pointer[missingKeyError]
}

// missingKeyError reports the ids of master keys that rows need and the process lacks.
type missingKeyError struct {
	ids    []string
	source string
}

// Error implements error.
func (m *missingKeyError) Error() string {
	return fmt.Sprintf("the database has rows under the master key %s, which this process lacks: add it to %s behind the present one, with a comma between, and restart",
		strings.Join(m.ids, " and "), m.source)
}

// Unwrap returns [keyring.ErrKeyMissing].
func (m *missingKeyError) Unwrap() error { return keyring.ErrKeyMissing }

// check returns a *missingKeyError if rows need a master key that this process lacks, and stores it for checkReady.
func (w *keyWatch) check(ctx context.Context) error {
	var ids []string
	var b db.Batch
	for _, s := range servingColumns {
		b.Query(func(r db.Row) error {
			var id string
			err := r.Scan(&id)
			if err == nil && !w.keys.HasKey(id) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
			return err
		}, "SELECT DISTINCT "+s.column+" FROM "+s.table)
	}
	if err := w.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for rows under missing master keys: %w", err)
	}
	if len(ids) == 0 {
		w.missing.Store(nil)
		return nil
	}
	slices.Sort(ids)
	m := &missingKeyError{ids, w.source}
	w.missing.Store(m)
	return m
}

// checkReady returns an error if the last check found a missing master key: other processes may have it.
func (w *keyWatch) checkReady() error {
	if m := w.missing.Load(); m != nil {
		return m
	}
	return nil
}

// countKeys returns how many master keys the process has after the first one, and how many the last check found that rows
// need and the process lacks.
func (w *keyWatch) countKeys() (former, missing int) {
	if m := w.missing.Load(); m != nil {
		missing = len(m.ids)
	}
	return len(w.keys.FormerKeyIDs()), missing
}

// run calls check every missingKeyInterval until ctx ends, whose error it returns, and logs when its result changes.
func (w *keyWatch) run(ctx context.Context) error {
	tick := time.NewTicker(missingKeyInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		before := w.checkReady()
		switch err := w.check(ctx); {
		case errors.Is(err, keyring.ErrKeyMissing):
			if before == nil || before.Error() != err.Error() {
				w.log.ErrorContext(ctx, "this process is not ready", "error", err)
			}
		case err != nil && ctx.Err() == nil:
			w.log.WarnContext(ctx, "rows under missing master keys could not be looked for", "error", err)
		case err == nil && before != nil:
			w.log.InfoContext(ctx, "this process has every master key that the database needs: it is ready again")
		}
	}
}
