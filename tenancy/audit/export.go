package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Line is one line of an exported audit trail; exactly one field is set. The entries of a chain are followed by
// the chain's head, unless the export holds only a part of the entries. The last line of the export is the End.
type Line struct {
	Entry *Entry
	Head  *Head
	End   *End
}

// Head is the end of a chain at the time of the export.
type Head struct {
	// App is the app's name in the chain's last entry, "" for the platform's own chain.
	App   string `json:"app"`
	AppID db.ID  `json:"app_id"`
	// Entries is the number of entries, and the sequence number of the last one.
	Entries int64 `json:"entries"`
	// Hash is the hash of the last entry.
	Hash string `json:"hash"`
	// Sealed reports whether the seal of the head is valid under a master key of this installation.
	Sealed bool `json:"sealed"`
}

// End is the last line of an export. An export without it was cut off.
type End struct {
	// Chains is the number of chains: for a complete export the number in the sealed head of all chains, else the
	// number of chains exported.
	Chains int64 `json:"chains"`
	// Part reports that a filter left out entries; then heads are left out as well, since they could not be verified.
	Part bool `json:"part"`
	// Sealed reports whether the seal of the number of chains is valid; it is true if no seal was needed.
	Sealed bool `json:"sealed"`
}

// encodedEntry is the JSON form of an [Entry] in an export. Its field names are part of the export format.
type encodedEntry struct {
	Seq     int64          `json:"seq"`
	ID      string         `json:"id"`
	At      time.Time      `json:"at"`
	Actor   string         `json:"actor"`
	Issuer  string         `json:"issuer"`
	Action  string         `json:"action"`
	App     string         `json:"app"`
	AppID   db.ID          `json:"app_id"`
	Client  string         `json:"client"`
	Request string         `json:"request_id"`
	Detail  map[string]any `json:"detail"`
	Prev    string         `json:"prev"`
	Hash    string         `json:"hash"`
}

// MarshalJSON writes the line as one JSON object: an entry by its own fields, a head and the end as the only member.
func (l Line) MarshalJSON() ([]byte, error) {
	if e := l.Entry; e != nil {
		return json.Marshal(encodedEntry{e.Seq, e.ID, e.At, e.Actor.Name, e.Actor.Issuer, e.Action, e.App, e.AppID, e.Actor.Client, e.Actor.Request, e.Detail, e.Prev, e.Hash})
	}
	return json.Marshal(struct {
		Head *Head `json:"head,omitempty"`
		End  *End  `json:"end,omitempty"`
	}{l.Head, l.End})
}

// UnmarshalJSON reads a line that [Line.MarshalJSON] wrote. The detail keeps its numbers as they are written
// ([decodeDetail]), because the hash covers their text.
func (l *Line) UnmarshalJSON(raw []byte) error {
	var x struct {
		encodedEntry
		Detail json.RawMessage `json:"detail"`
		Head   *Head           `json:"head"`
		End    *End            `json:"end"`
	}
	if err := json.Unmarshal(raw, &x); err != nil {
		return err
	}
	if *l = (Line{Head: x.Head, End: x.End}); x.Head != nil || x.End != nil {
		return nil
	}
	detail, err := decodeDetail(x.Detail)
	if err != nil {
		return fmt.Errorf("detail: %w", err)
	}
	actor := Actor{x.Actor, x.Issuer, Origin{x.Client, x.Request}}
	l.Entry = &Entry{x.ID, x.At.UTC(), actor, x.Action, x.App, x.AppID, detail, x.Seq, x.Prev, x.Hash}
	return nil
}

// exportBatchSize is how many entries are read, and kept in memory, at a time.
const exportBatchSize = 500

// Export yields the audit trail, or the entries that f selects, chain after chain and each in order. Committed
// entries are chained first. The sequence ends with an [End], or with an error that cut it off. Where this process lacks a
// master key of a head, [keyring.ErrKeyMissing] is all it yields.
func (t *Trail) Export(ctx context.Context, f Filter) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		if err := t.exportChains(ctx, f, yield); err != nil {
			yield(Line{}, fmt.Errorf("export the audit trail: %w", err))
		}
	}
}

// exportChains yields the lines of all selected chains and the end. It stops without an error when yield returns false.
func (t *Trail) exportChains(ctx context.Context, f Filter, yield func(Line, error) bool) error {
	if err := t.chains.sealAll(ctx); err != nil {
		return err
	}
	if err := t.chains.checkKeys(ctx); err != nil {
		return err
	}
	end := End{Part: f != Filter{App: f.App}}
	for chain, err := range t.listChains(ctx, f.App) {
		if err != nil {
			return err
		}
		end.Chains++
		if more, err := t.exportChain(ctx, chain, f, end.Part, yield); err != nil || !more {
			return err
		}
	}
	end.Sealed = true
	if f == (Filter{}) {
		all, err := t.chains.readHead(ctx, allChains)
		if err != nil {
			return err
		}
		unchained, err := countUnchainedApps(ctx, t.db)
		if err != nil {
			return err
		}
		sealed := t.chains.checkSeal(all) == nil || all.seal == nil && end.Chains == 0
		// Another number than the sealed one is reported as such.
		end.Chains, end.Sealed = all.seq, sealed && (unchained == 0 || end.Chains != all.seq)
	}
	yield(Line{End: &end}, nil)
	return nil
}

// countUnchainedApps returns how many apps have no entry and no head, although the creation of an app is its first entry.
// Who deletes the whole trail together with the sealed number of its chains leaves such apps.
func countUnchainedApps(ctx context.Context, h *db.Handle) (n int64, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&n) }, `SELECT COUNT(*) FROM app
		WHERE NOT EXISTS (SELECT 1 FROM audit_head h WHERE h.app_id = app.tenant) AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.app_id = app.tenant)`)
	if err := h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("look for apps without a chain: %w", err)
	}
	return n, nil
}

// exportChain yields the lines of one chain and reports whether the consumer wants more. It reads the head after the
// entries and continues until both agree, because the chain may grow meanwhile: an entry beyond the head then was not
// put there by [Trail.Seal]. If the head names entries that a second query does not find either, they are
// missing.
func (t *Trail) exportChain(ctx context.Context, chain string, f Filter, part bool, yield func(Line, error) bool) (more bool, err error) {
	f.App = "" // the chain belongs to the app already
	reported := Head{AppID: db.ID(chain)}
	again := false // the last query found no entry although the head names one
	for after := int64(0); ; {
		entries, err := t.readChainEntries(ctx, chain, f, after)
		if err != nil {
			return false, err
		}
		for i := range entries {
			if !yield(Line{Entry: &entries[i]}, nil) {
				return false, nil
			}
			after, reported.App = entries[i].Seq, entries[i].App
		}
		if len(entries) == exportBatchSize {
			continue
		}
		if part {
			return true, nil
		}
		h, err := t.chains.readHead(ctx, chain)
		if err != nil {
			return false, err
		}
		if h.seq > after && (len(entries) > 0 || !again) {
			again = len(entries) == 0
			continue // the chain has grown since
		}
		reported.Entries, reported.Hash, reported.Sealed = h.seq, h.hash, t.chains.checkSeal(h) == nil
		return yield(Line{Head: &reported}, nil), nil
	}
}

// readChainEntries reads up to exportBatchSize entries of a chain with a sequence number above after.
func (t *Trail) readChainEntries(ctx context.Context, chain string, f Filter, after int64) (entries []Entry, err error) {
	var b db.Batch
	b.Query(scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE `+entryFilterSQL+` AND app_id = $6 AND seq > $7
		ORDER BY seq LIMIT $8`, append(f.filterArgs(), chain, after, exportBatchSize)...)
	return entries, t.db.Do(ctx, &b)
}

// checkKeys returns [keyring.ErrKeyMissing] if a head is sealed with a master key that this process lacks. An export would
// report such a head as one that was changed.
func (c *chains) checkKeys(ctx context.Context) error {
	var missing error
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		if err == nil && !c.keys.HasKey(id) {
			missing = fmt.Errorf("%w %s", keyring.ErrKeyMissing, id)
		}
		return err
	}, `SELECT DISTINCT master_key FROM audit_head`)
	if err := c.db.Do(ctx, &b); err != nil {
		return err
	}
	return missing
}

// readHead returns the head of a chain; its seal is nil if there is none.
func (c *chains) readHead(ctx context.Context, chain string) (chainHead, error) {
	h := chainHead{chain: chain}
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal, &h.masterKey) }, `SELECT seq, hash, seal, master_key FROM audit_head WHERE app_id = $1`, chain)
	return h, c.db.Do(ctx, &b)
}

// listChains yields the ids of all chains, the platform's own first; with app those of apps that have or had that name
// or id. It looks into both the entries and the heads, so that a chain whose head or whose entries were deleted is
// found.
func (t *Trail) listChains(ctx context.Context, app string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if app != "" {
			t.queryChains(ctx, yield, `SELECT app_id FROM audit WHERE seq > 0 AND (app = $1 OR app_id = $1)
				UNION SELECT app_id FROM audit_head WHERE app_id <> '*' AND (app_id = $1 OR app_id IN (SELECT tenant FROM app WHERE name = $1)) ORDER BY app_id`, app)
			return
		}
		last, n := "", t.queryChains(ctx, yield, `SELECT app_id FROM audit_head WHERE app_id = '' UNION SELECT app_id FROM audit WHERE seq = 1 AND app_id = ''`)
		for n >= 0 {
			// One query for each chain, which reads one index entry: DISTINCT would read all entries.
			n = t.queryChains(ctx, func(chain string, err error) bool {
				last = chain
				return yield(chain, err)
			}, `SELECT MIN(c.app_id) FROM (SELECT MIN(app_id) AS app_id FROM audit_head WHERE app_id > $1 AND app_id <> '*'
				UNION ALL SELECT MIN(app_id) FROM audit WHERE seq > 0 AND app_id > $1) AS c HAVING COUNT(c.app_id) > 0`, last)
			if n == 0 {
				return
			}
		}
	}
}

// queryChains yields the chain ids that a query returns and returns their number, or -1 if the iteration must end: an
// error was yielded, or the consumer wants no more.
func (t *Trail) queryChains(ctx context.Context, yield func(string, error) bool, sql string, args ...any) int {
	var found []string
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		found = append(found, id)
		return err
	}, sql, args...)
	if err := t.db.Do(ctx, &b); err != nil {
		yield("", err)
		return -1
	}
	for _, chain := range found {
		if !yield(chain, nil) {
			return -1
		}
	}
	return len(found)
}
