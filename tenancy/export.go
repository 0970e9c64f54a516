package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"stoa/tenancy/db"
)

// ExportLine is one line of an exported trail: exactly one of its fields is set. Behind the entries of a chain stands its
// head, unless the export holds only a part of the entries; the last line of all is the end.
type ExportLine struct {
	Entry *AuditEntry
	Head  *ExportedHead
	End   *ExportEnd
}

// ExportedHead tells where a chain ended when it was exported.
type ExportedHead struct {
	App     string `json:"app"` // its name in the last entry; "" = the platform's own chain
	AppID   db.ID  `json:"app_id"`
	Entries int64  `json:"entries"`
	Hash    string `json:"hash"`
	Sealed  bool   `json:"sealed"` // the platform knows its own seal on it
}

// ExportEnd closes an export, so that one which was cut off can be told.
type ExportEnd struct {
	Chains int64 `json:"chains"` // that there are, as the platform counts them; of one app: that were exported
	Part   bool  `json:"part"`   // entries were left out, and heads with them
	Sealed bool  `json:"sealed"` // the platform knows its own seal on the count
}

// encodedEntry is an [Entry] as a line.
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

// MarshalJSON writes the line as one JSON object.
func (l ExportLine) MarshalJSON() ([]byte, error) {
	if e := l.Entry; e != nil {
		return json.Marshal(encodedEntry{e.Seq, e.ID, e.At, e.Actor, e.Issuer, e.Action, e.App, e.AppID, e.Client, e.Request, e.Detail, e.Prev, e.Hash})
	}
	return json.Marshal(struct {
		Head *ExportedHead `json:"head,omitempty"`
		End  *ExportEnd    `json:"end,omitempty"`
	}{l.Head, l.End})
}

// UnmarshalJSON reads what [Line.MarshalJSON] wrote.
func (l *ExportLine) UnmarshalJSON(raw []byte) error {
	var x struct {
		encodedEntry
		Detail json.RawMessage `json:"detail"`
		Head   *ExportedHead   `json:"head"`
		End    *ExportEnd      `json:"end"`
	}
	if err := json.Unmarshal(raw, &x); err != nil {
		return err
	}
	if *l = (ExportLine{Head: x.Head, End: x.End}); x.Head != nil || x.End != nil {
		return nil
	}
	detail, err := decodeDetail(x.Detail)
	if err != nil {
		return fmt.Errorf("detail: %w", err)
	}
	l.Entry = &AuditEntry{x.ID, x.At.UTC(), x.Actor, x.Issuer, x.Action, x.App, x.AppID, x.Client, x.Request, detail, x.Seq, x.Prev, x.Hash}
	return nil
}

// exportBatchSize is how many entries are in memory at a time.
const exportBatchSize = 500

// ExportTrail yields the trail, or what of it f selects, chain after chain, each from its beginning. It ends with an [End], or
// with the error that cut it off.
func (s *Service) ExportTrail(ctx context.Context, f AuditFilter) iter.Seq2[ExportLine, error] {
	return func(yield func(ExportLine, error) bool) {
		if err := s.exportChains(ctx, f, yield); err != nil {
			yield(ExportLine{}, fmt.Errorf("export the audit trail: %w", err))
		}
	}
}

func (s *Service) exportChains(ctx context.Context, f AuditFilter, yield func(ExportLine, error) bool) error {
	if err := s.SealChains(ctx); err != nil {
		return err
	}
	end := ExportEnd{Part: f != AuditFilter{App: f.App}}
	for chain, err := range s.listChains(ctx, f.App) {
		if err != nil {
			return err
		}
		end.Chains++
		if more, err := s.exportChain(ctx, chain, f, end.Part, yield); err != nil || !more {
			return err
		}
	}
	end.Sealed = true
	if f == (AuditFilter{}) {
		all, err := s.readHead(ctx, allChains)
		if err != nil {
			return err
		}
		end.Chains, end.Sealed = all.seq, s.isGenuine(all) || all.seal == nil && end.Chains == 0
	}
	yield(ExportLine{End: &end}, nil)
	return nil
}

// exportChain reports whether whoever reads wants more. It looks at the head after the entries: those that are beyond it
// then were not put there by [Service.Seal].
func (s *Service) exportChain(ctx context.Context, chain string, f AuditFilter, part bool, yield func(ExportLine, error) bool) (more bool, err error) {
	f.App = "" // the chain is the app's
	reported := ExportedHead{AppID: db.ID(chain)}
	again := false // whether the last look found nothing behind what the head tells of
	for after := int64(0); ; {
		entries, err := s.readChainEntries(ctx, chain, f, after)
		if err != nil {
			return false, err
		}
		for i := range entries {
			if !yield(ExportLine{Entry: &entries[i]}, nil) {
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
		h, err := s.readHead(ctx, chain)
		if err != nil {
			return false, err
		}
		if h.seq > after && (len(entries) > 0 || !again) {
			again = len(entries) == 0
			continue // it has grown since
		}
		reported.Entries, reported.Hash, reported.Sealed = h.seq, h.hash, s.isGenuine(h)
		return yield(ExportLine{Head: &reported}, nil), nil
	}
}

// readChainEntries reads the entries of a chain behind one of them, as many as may be in memory.
func (s *Service) readChainEntries(ctx context.Context, chain string, f AuditFilter, after int64) (entries []AuditEntry, err error) {
	var b db.Batch
	b.Query(scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE `+entryFilterSQL+` AND app_id = $6 AND seq > $7
		ORDER BY seq LIMIT $8`, append(f.filterArgs(), chain, after, exportBatchSize)...)
	return entries, s.db.Platform().Do(ctx, &b)
}

// readHead returns the head of a chain, without a seal where there is none.
func (s *Service) readHead(ctx context.Context, chain string) (chainHead, error) {
	h := chainHead{chain: chain}
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal) }, `SELECT seq, hash, seal FROM audit_head WHERE app_id = $1`, chain)
	return h, s.db.Platform().Do(ctx, &b)
}

// listChains yields the chains there are: all, the platform's own first, or those of apps that bear or bore the name, or have
// the id. A chain that has lost its head, or its entries, is one.
func (s *Service) listChains(ctx context.Context, app string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if app != "" {
			s.queryChains(ctx, yield, `SELECT app_id FROM audit WHERE seq > 0 AND (app = $1 OR app_id = $1)
				UNION SELECT app_id FROM audit_head WHERE app_id <> '*' AND (app_id = $1 OR app_id IN (SELECT tenant FROM app WHERE name = $1)) ORDER BY app_id`, app)
			return
		}
		last, n := "", s.queryChains(ctx, yield, `SELECT app_id FROM audit_head WHERE app_id = '' UNION SELECT app_id FROM audit WHERE seq = 1 AND app_id = ''`)
		for n >= 0 {
			// One look for each chain, however many entries it has.
			n = s.queryChains(ctx, func(chain string, err error) bool {
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

// queryChains yields the chains that a query returns, and returns how many they are, -1 if that is to be the end.
func (s *Service) queryChains(ctx context.Context, yield func(string, error) bool, sql string, args ...any) int {
	var found []string
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		found = append(found, id)
		return err
	}, sql, args...)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
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
