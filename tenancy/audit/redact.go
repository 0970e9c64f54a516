package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// actionRedact is the action of the entry that records the redaction of a chain. Its detail holds the number of changed
// entries and the hash at which the chain ended before.
const actionRedact = "audit.redact"

// unhashedFields are the members of "before" and "after" whose values the audit trail keeps in clear.
var unhashedFields = []string{"status", "revision", "plan", "grants", "limits", "name", "scopes"}

// Redact replaces, with keyed hashes, values that earlier versions of Stoa wrote to the audit trail in clear, such as
// configurations, and reports whether it changed any rows. The migration that creates the table audit_redact lists the
// chains concerned; each is removed from it when done. A chain is verified first, then hashed anew from the first
// changed entry on, and gets an entry that records the change. A chain that fails the verification is left as it is, so
// that the tampering stays visible.
//
// loadHasher returns the hasher of an app by its id. For a deleted app it returns one with a random key, which is
// discarded.
func (t *Trail) Redact(ctx context.Context, loadHasher func(ctx context.Context, app string) (keyring.Hasher, error)) (redacted bool, err error) {
	var listed []string
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		listed = append(listed, id)
		return err
	}, `SELECT app_id FROM audit_redact ORDER BY app_id LIMIT 100`)
	if err := t.db.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("look for audit entries to redact: %w", err)
	}
	for _, id := range listed {
		hasher, err := loadHasher(ctx, id)
		if err == nil {
			err = t.db.RunTx(ctx, func(tx *db.Tx) error { return t.chains.redactChain(ctx, tx, id, hasher) })
		}
		if errors.Is(err, errChainBroken) {
			t.chains.logTampering(ctx, id)
			err = t.markRedacted(ctx, id)
		}
		if err != nil {
			return redacted, fmt.Errorf("redact the audit trail of %q: %w", id, err)
		}
		redacted = true
	}
	return redacted, nil
}

// markRedacted removes a chain from the list of chains to redact.
func (t *Trail) markRedacted(ctx context.Context, id string) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM audit_redact WHERE app_id = $1`, id)
	return t.db.Do(ctx, &b)
}

// redactChain redacts a chain within one transaction. Entries outside the chain are chained first, so that they are
// covered too. The head's lock keeps other processes from appending meanwhile.
func (c *chains) redactChain(ctx context.Context, tx *db.Tx, id string, hasher keyring.Hasher) error {
	for n := sealBatchSize; n == sealBatchSize; {
		var err error
		if n, err = c.sealBatch(ctx, tx, id); err != nil {
			return err
		}
	}
	h, err := c.lockHead(ctx, tx, id)
	if err != nil {
		return err
	}
	// last is the entry verified last, as it was stored; prev is the hash of its redacted form.
	var last Entry
	prev, n := "", 0 // n counts the entries that were changed
	for more := true; more; {
		var entries []Entry
		err := tx.Query(ctx, scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE app_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, id, last.Seq, exportBatchSize)
		if err != nil {
			return err
		}
		more = len(entries) == exportBatchSize
		for _, e := range entries {
			if hash, err := e.ComputeHash(last.Hash); err != nil || hash != e.Hash || e.Prev != last.Hash || e.Seq != last.Seq+1 {
				return errChainBroken
			}
			last = e
			detail, changed := redactDetail(e, hasher)
			if changed {
				n++
			}
			if prev, err = rewriteEntry(ctx, tx, e, detail, prev, changed); err != nil {
				return err
			}
		}
	}
	if last.Seq != h.seq || last.Hash != h.hash {
		return errChainBroken
	}
	if n > 0 {
		former := h.hash
		h.hash = prev
		if err := c.storeHead(ctx, tx, h); err != nil {
			return err
		}
		detail := map[string]any{"entries": n, "former_head": former}
		if err := Insert(ctx, tx, Entry{Actor: System, Action: actionRedact, App: last.App, AppID: last.AppID, Detail: detail}); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `DELETE FROM audit_redact WHERE app_id = $1`, id)
	return err
}

// rewriteEntry stores an entry with a new detail and the hash that follows from prev, and returns that hash. An entry
// before the first change keeps its row.
func rewriteEntry(ctx context.Context, tx *db.Tx, e Entry, detail map[string]any, prev string, changed bool) (hash string, err error) {
	if !changed && e.Prev == prev {
		return e.Hash, nil
	}
	e.Detail = detail
	raw, err := json.Marshal(detail)
	if err != nil {
		return "", err
	}
	if hash, err = e.ComputeHash(prev); err != nil {
		return "", err
	}
	_, err = tx.Exec(ctx, `UPDATE audit SET detail = $2, prev = $3, hash = $4 WHERE id = $1`, e.ID, string(raw), prev, hash)
	return hash, err
}

// redactDetail returns a copy of an entry's detail with the values hashed that the trail no longer stores, and whether
// it changed anything. Values that are hashes already stay, so that a second run changes nothing.
func redactDetail(e Entry, hasher keyring.Hasher) (detail map[string]any, changed bool) {
	detail = maps.Clone(e.Detail)
	family, _, _ := strings.Cut(e.Action, ".")
	if !slices.Contains([]string{"app", "approval", "notification", "config"}, family) {
		return detail, false
	}
	hash := func(in map[string]any, name string) {
		if v, ok := in[name]; ok && v != nil && v != "" && !keyring.IsHash(v) {
			in[name], changed = hasher.HashValue(v), true
		}
	}
	for _, side := range []string{"before", "after"} {
		values, ok := detail[side].(map[string]any)
		if !ok {
			continue
		}
		values = maps.Clone(values)
		for name := range values {
			if !slices.Contains(unhashedFields, name) {
				hash(values, name)
			}
		}
		detail[side] = values
	}
	switch family {
	case "approval":
		hash(detail, "arguments")
	case "notification":
		hash(detail, "config")
	}
	return detail, changed
}
