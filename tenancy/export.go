package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"stoa/tenancy/db"
)

// Line is one line of an exported trail: exactly one of its fields is set. Behind the entries of a chain stands its
// head, unless the export holds only a part of the entries; the last line of all is the end.
type Line struct {
	Entry *Entry
	Head  *Head
	End   *End
}

// Head tells where a chain ended when it was exported.
type Head struct {
	App     string `json:"app"` // its name in the last entry; "" = the platform's own chain
	AppID   db.ID  `json:"app_id"`
	Entries int64  `json:"entries"`
	Hash    string `json:"hash"`
	Sealed  bool   `json:"sealed"` // the platform knows its own seal on it
}

// End closes an export, so that one which was cut off can be told.
type End struct {
	Chains int64 `json:"chains"` // that there are, as the platform counts them; of one app: that were exported
	Part   bool  `json:"part"`   // entries were left out, and heads with them
	Sealed bool  `json:"sealed"` // the platform knows its own seal on the count
}

// entryLine is an [Entry] as a line.
type entryLine struct {
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
func (l Line) MarshalJSON() ([]byte, error) {
	if e := l.Entry; e != nil {
		return json.Marshal(entryLine{e.Seq, e.ID, e.At, e.Actor, e.Issuer, e.Action, e.App, e.AppID, e.Client, e.Request, e.Detail, e.Prev, e.Hash})
	}
	return json.Marshal(struct {
		Head *Head `json:"head,omitempty"`
		End  *End  `json:"end,omitempty"`
	}{l.Head, l.End})
}

// UnmarshalJSON reads what [Line.MarshalJSON] wrote.
func (l *Line) UnmarshalJSON(raw []byte) error {
	var x struct {
		entryLine
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
	l.Entry = &Entry{x.ID, x.At.UTC(), x.Actor, x.Issuer, x.Action, x.App, x.AppID, x.Client, x.Request, detail, x.Seq, x.Prev, x.Hash}
	return nil
}

// perExport is how many entries are in memory at a time.
const perExport = 500

// Export yields the trail, or what of it f selects, chain after chain, each from its beginning. It ends with an [End], or
// with the error that cut it off.
func (s *Service) Export(ctx context.Context, f AuditFilter) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		if err := s.export(ctx, f, yield); err != nil {
			yield(Line{}, fmt.Errorf("export the audit trail: %w", err))
		}
	}
}

func (s *Service) export(ctx context.Context, f AuditFilter, yield func(Line, error) bool) error {
	if err := s.Seal(ctx); err != nil {
		return err
	}
	end := End{Part: f != AuditFilter{App: f.App}}
	for chain, err := range s.chains(ctx, f.App) {
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
		end.Chains, end.Sealed = all.seq, s.genuine(all) || all.seal == nil && end.Chains == 0
	}
	yield(Line{End: &end}, nil)
	return nil
}

// exportChain reports whether whoever reads wants more. It looks at the head after the entries: those that are beyond it
// then were not put there by [Service.Seal].
func (s *Service) exportChain(ctx context.Context, chain string, f AuditFilter, part bool, yield func(Line, error) bool) (more bool, err error) {
	f.App = "" // the chain is the app's
	told := Head{AppID: db.ID(chain)}
	again := false // whether the last look found nothing behind what the head tells of
	for after := int64(0); ; {
		entries, err := s.chained(ctx, chain, f, after)
		if err != nil {
			return false, err
		}
		for i := range entries {
			if !yield(Line{Entry: &entries[i]}, nil) {
				return false, nil
			}
			after, told.App = entries[i].Seq, entries[i].App
		}
		if len(entries) == perExport {
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
		told.Entries, told.Hash, told.Sealed = h.seq, h.hash, s.genuine(h)
		return yield(Line{Head: &told}, nil), nil
	}
}

// chained reads the entries of a chain behind one of them, as many as may be in memory.
func (s *Service) chained(ctx context.Context, chain string, f AuditFilter, after int64) (entries []Entry, err error) {
	var b db.Batch
	b.Query(readEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE `+entryFilter+` AND app_id = $6 AND seq > $7
		ORDER BY seq LIMIT $8`, append(f.args(), chain, after, perExport)...)
	return entries, s.db.Platform().Do(ctx, &b)
}

// readHead returns the head of a chain, without a seal where there is none.
func (s *Service) readHead(ctx context.Context, chain string) (head, error) {
	h := head{chain: chain}
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal) }, `SELECT seq, hash, seal FROM audit_head WHERE app_id = $1`, chain)
	return h, s.db.Platform().Do(ctx, &b)
}

// chains yields the chains there are: all, the platform's own first, or those of apps that bear or bore the name, or have
// the id. A chain that has lost its head, or its entries, is one.
func (s *Service) chains(ctx context.Context, app string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if app != "" {
			s.chainsBy(ctx, yield, `SELECT app_id FROM audit WHERE seq > 0 AND (app = $1 OR app_id = $1)
				UNION SELECT app_id FROM audit_head WHERE app_id <> '*' AND (app_id = $1 OR app_id IN (SELECT tenant FROM app WHERE name = $1)) ORDER BY app_id`, app)
			return
		}
		last, n := "", s.chainsBy(ctx, yield, `SELECT app_id FROM audit_head WHERE app_id = '' UNION SELECT app_id FROM audit WHERE seq = 1 AND app_id = ''`)
		for n >= 0 {
			// One look for each chain, however many entries it has.
			n = s.chainsBy(ctx, func(chain string, err error) bool {
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

// chainsBy yields the chains that a query returns, and returns how many they are, -1 if that is to be the end.
func (s *Service) chainsBy(ctx context.Context, yield func(string, error) bool, sql string, args ...any) int {
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
