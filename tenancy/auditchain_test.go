package tenancy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
	"stoa/tenancy/tenancytest"
)

// verifyTrail exports the trail of an app ("" = all) as text, verifies it, and returns one line for each flaw and the
// number of entries.
func verifyTrail(t testing.TB, s *tenancy.Service, app string, contains ...string) (flaws []string, entries int) {
	t.Helper()
	v := audit.Verifier{RequiredHashes: contains, OnResult: func(v audit.Result) {
		entries += int(v.Entries)
		for _, f := range v.Flaws {
			flaws = append(flaws, fmt.Sprintf("%s %d: %s", v.App, f.Seq, f.Text))
		}
	}}
	for _, line := range exportTrail(t, s, audit.Filter{App: app}) {
		v.AddLine(line)
	}
	for _, f := range v.Close().Flaws {
		flaws = append(flaws, "all: "+f.Text)
	}
	return flaws, entries
}

// exportTrail returns the lines of an export after encoding and decoding them.
func exportTrail(t testing.TB, s *tenancy.Service, f audit.Filter) (lines []audit.Line) {
	t.Helper()
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	for line, err := range s.Trail.Export(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	for in := json.NewDecoder(&text); in.More(); {
		var line audit.Line
		if err := in.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// writeEntries writes n entries about an app.
func writeEntries(t testing.TB, s *tenancy.Service, app db.ID, n int) {
	t.Helper()
	for i := range n {
		detail := map[string]any{"n": i, "big": int64(1) << 60, "text": "<a&b> \u2028 \x00 \xff", "list": []any{1.5, nil, true, map[string]any{"z": 1, "a": 2}}}
		if err := s.Trail.Record(t.Context(), audit.Entry{Actor: audit.Actor{Name: "ana", Issuer: "iss"}, Action: "test.do", AppID: app, Detail: detail}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChain(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		if flaws, n := verifyTrail(t, s, ""); flaws != nil || n != 0 {
			t.Errorf("an empty trail: %d entries, %v", n, flaws)
		}
		acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		admin := audit.Actor{Name: "admin", Origin: audit.Origin{Client: "192.0.2.1", Request: "r-1"}}
		if err := s.Trail.Record(t.Context(), audit.Entry{Actor: admin, Action: "price.create"}); err != nil {
			t.Fatal(err)
		}
		writeEntries(t, s, acme.ID, 3)
		entries, _, err := s.Trail.List(t.Context(), audit.Query{Filter: audit.Filter{App: "acme"}, Size: 1})
		if err != nil || len(entries) != 1 {
			t.Fatal(len(entries), err)
		}
		if e := entries[0]; e.Seq != 4 || len(e.Hash) != 64 || e.Prev == "" || e.App != "acme" {
			t.Errorf("the newest entry is %+v", e)
		}
		lines := exportTrail(t, s, audit.Filter{})
		if e := lines[0].Entry; e == nil || e.Actor.Origin != admin.Origin || e.AppID != "" || e.Seq != 1 || e.Prev != "" {
			t.Errorf("the first line is %+v, want the platform's own entry", e)
		}
		if end := lines[len(lines)-1].End; end == nil || *end != (audit.End{Chains: 2, Sealed: true}) {
			t.Errorf("the last line is %+v", end)
		}
		if flaws, n := verifyTrail(t, s, "", lines[0].Entry.Hash, entries[0].Hash); flaws != nil || n != 5 {
			t.Errorf("%d entries, %v", n, flaws)
		}
		if flaws, n := verifyTrail(t, s, "acme"); flaws != nil || n != 4 {
			t.Errorf("of acme: %d entries, %v", n, flaws)
		}
		if err := s.DeleteApp(t.Context(), audit.Actor{Name: "admin"}, "acme"); err != nil {
			t.Fatal(err)
		}
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		if flaws, n := verifyTrail(t, s, "acme"); flaws != nil || n != 7 {
			t.Errorf("of both that bore the name: %d entries, %v", n, flaws)
		}
		if flaws, n := verifyTrail(t, s, string(acme.ID), entries[0].Hash); flaws != nil || n != 6 {
			t.Errorf("of the one that is gone: %d entries, %v", n, flaws)
		}
		if flaws, _ := verifyTrail(t, s, "", "0123"); len(flaws) != 1 || flaws[0] != "all: no entry has the hash 0123" {
			t.Errorf("a head that never was: %v", flaws)
		}
	})
}

// TestChainGrowsWithManyAtOnce appends entries from a hundred goroutines through two handles, while both services seal
// and export.
func TestChainGrowsWithManyAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		services := []*tenancy.Service{tenancytest.NewService(t, d), tenancytest.NewService(t, d)}
		acme := tenancytest.CreateApp(t, services[0], tenancy.Draft{Name: "acme"})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				e := audit.Entry{Actor: audit.Actor{Name: fmt.Sprint(i)}, Action: "test.do", AppID: acme.ID}
				var err error
				switch i % 3 {
				case 0:
					err = services[i%2].Trail.Record(t.Context(), e)
				case 1: // with the app's own handle, alone
					err = d.Tenant(acme.ID).RunTx(t.Context(), func(tx *db.Tx) error { return audit.Insert(t.Context(), tx, e) })
				default: // with the app's own handle, in a group commit
					var b db.Batch
					if err = audit.Queue(t.Context(), &b, e, `$10 = 1`, 1); err == nil {
						err = d.Tenant(acme.ID).Write(t.Context(), &b)
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		for i := range 10 {
			all.Go(func() {
				if err := services[i%2].Trail.Seal(t.Context()); err != nil {
					t.Error(err)
				}
				if flaws, _ := verifyTrail(t, services[i%2], ""); flaws != nil {
					t.Errorf("while it grows: %v", flaws)
				}
			})
		}
		all.Wait()
		if flaws, n := verifyTrail(t, services[1], "acme"); flaws != nil || n != 101 {
			t.Errorf("%d entries, want 101; %v", n, flaws)
		}
	})
}

// TestLongChain uses a chain that is longer than one batch of sealing and of exporting.
func TestLongChain(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		err := d.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
			for i := range 999 {
				if err := audit.Insert(t.Context(), tx, audit.Entry{Actor: audit.Actor{Name: fmt.Sprint(i)}, Action: "test.do", AppID: acme.ID}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if flaws, n := verifyTrail(t, s, ""); flaws != nil || n != 1000 {
			t.Errorf("%d entries, want 1000; %v", n, flaws)
		}
	})
}

// afterRead calls a function when a transaction or a read with its context has ended.
type afterRead struct {
	sdk.SpanProcessor
	do func()
}

func (afterRead) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (a afterRead) OnEnd(sdk.ReadOnlySpan)                   { a.do() }

// TestExportOfAGrowingChain adds an entry after the last entry was read and before the head is: the export must contain
// it.
func TestExportOfAGrowingChain(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		err := d.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
			for range 499 { // with the first entry, a full batch
				if err := audit.Insert(t.Context(), tx, audit.Entry{Actor: audit.Actor{Name: "ana"}, Action: "test.do", AppID: acme.ID}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		seen, grown := 0, false
		spans := sdk.NewTracerProvider(sdk.WithSpanProcessor(afterRead{do: func() {
			if seen == 500 && !grown {
				grown = true
				writeEntries(t, s, acme.ID, 1)
				if err := s.Trail.Seal(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}))
		ctx, _ := spans.Tracer("test").Start(t.Context(), "export")
		v := audit.Verifier{OnResult: func(v audit.Result) {
			if v.Entries != 501 || len(v.Flaws) > 0 {
				t.Errorf("%d entries of 501, flaws %v", v.Entries, v.Flaws)
			}
		}}
		for line, err := range s.Trail.Export(ctx, audit.Filter{App: "acme"}) {
			if err != nil {
				t.Fatal(err)
			}
			if line.Entry != nil {
				seen++
			}
			v.AddLine(line)
		}
		if v.Close(); !grown {
			t.Error("the chain has not grown")
		}
	})
}

// TestTampering changes the rows of a chain of six entries in every way that is possible with the database and without
// the master key.
func TestTampering(t *testing.T) {
	t.Parallel()
	const chained = ` FROM audit WHERE app = 'acme' AND seq = `
	forge := func(t *testing.T, d *db.DB, s *tenancy.Service, change func(*audit.Entry)) {
		t.Helper() // rewrites the chain from the third entry on, with matching hashes
		prev := ""
		for _, line := range exportTrail(t, s, audit.Filter{App: "acme"}) {
			e := line.Entry
			if e == nil {
				continue
			}
			if e.Seq == 3 {
				change(e)
			}
			if e.Seq >= 3 {
				hash, err := e.ComputeHash(prev)
				if err != nil {
					t.Fatal(err)
				}
				tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit SET actor = $2, prev = $3, hash = $4 WHERE id = $1`, e.ID, e.Actor.Name, prev, hash)
				e.Hash = hash
			}
			prev = e.Hash
		}
	}
	for name, tt := range map[string]struct {
		do   string // SQL; the alternative is more
		more func(t *testing.T, d *db.DB, s *tenancy.Service)
		want []string
		both bool // also run on PostgreSQL
	}{
		"nothing":         {do: `SELECT 1`},
		"changed actor":   {do: `UPDATE audit SET actor = 'eve' WHERE app = 'acme' AND seq = 3`, want: []string{"acme 3: it was changed"}},
		"changed time":    {do: `UPDATE audit SET at = at - 1 WHERE app = 'acme' AND seq = 6`, want: []string{"acme 6: it was changed"}},
		"changed detail":  {do: `UPDATE audit SET detail = REPLACE(detail, '1.5', '2.5') WHERE app = 'acme' AND seq = 2`, want: []string{"acme 2: it was changed"}},
		"changed client":  {do: `UPDATE audit SET client = '192.0.2.9' WHERE app = 'acme' AND seq = 1`, want: []string{"acme 1: it was changed"}},
		"changed request": {do: `UPDATE audit SET request_id = 'x' WHERE app = 'acme' AND seq = 1`, want: []string{"acme 1: it was changed"}},
		"changed issuer":  {do: `UPDATE audit SET issuer = '' WHERE app = 'acme' AND seq = 3`, want: []string{"acme 3: it was changed"}},
		"changed hash":    {do: `UPDATE audit SET hash = 'ff' WHERE app = 'acme' AND seq = 3`, want: []string{"acme 3: it was changed", "acme 4: it does not follow"}},
		"removed":         {do: `DELETE` + chained + `3`, want: []string{"acme 4: the entry before it is missing"}},
		"removed more":    {do: `DELETE FROM audit WHERE app = 'acme' AND seq IN (2, 3, 5)`, want: []string{"acme 4: 2 entries before it", "acme 6: the entry before it"}, both: true},
		"removed first":   {do: `DELETE` + chained + `1`, want: []string{"acme 2: the entry before it is missing"}},
		"removed last":    {do: `DELETE` + chained + `6`, want: []string{"acme 0: its last entries are missing: 6 to 6"}},
		"removed all":     {do: `DELETE FROM audit WHERE app = 'acme'`, want: []string{" 0: its last entries are missing: 1 to 6"}},
		"removed, renumbered": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			tenancytest.ExecSQL(t, d.Platform(), `DELETE`+chained+`3`)
			for i := 4; i <= 6; i++ {
				tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit SET seq = $1 WHERE app = 'acme' AND seq = $2`, i-1, i)
			}
		}, want: []string{"acme 3: it does not follow", "acme 0: its last entries are missing: 6 to 6"}},
		"inserted": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			for i := 6; i >= 3; i-- {
				tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit SET seq = $1 WHERE app = 'acme' AND seq = $2`, i+1, i)
			}
			tenancytest.ExecSQL(t, d.Platform(), `INSERT INTO audit (id, at, actor, action, app, app_id, detail, seq, prev, hash)
				SELECT 'forged', at, 'eve', action, app, app_id, detail, 3, hash, 'aa'`+chained+`2`)
		}, want: []string{"acme 3: it was changed", "acme 4: it does not follow", "acme 0: there are entries after its end"}},
		"appended": {do: `INSERT INTO audit (id, at, actor, action, app, app_id, detail, seq, prev, hash)
				SELECT 'forged', at, 'eve', action, app, app_id, detail, 7, hash, 'aa'` + chained + `6`,
			want: []string{"acme 7: it was changed", "acme 0: there are entries after its end, which is at 6"}},
		"reordered": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			for _, step := range [][2]int{{3, 100}, {4, 3}, {100, 4}} {
				tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit SET seq = $1 WHERE app = 'acme' AND seq = $2`, step[1], step[0])
			}
		}, want: []string{"acme 3: it does not follow", "acme 4: it does not follow", "acme 5: it does not follow"}},
		"moved to another app": {do: `UPDATE audit SET app_id = 'elsewhere', seq = 1 WHERE app = 'acme' AND seq = 6`,
			want: []string{"acme 0: its last entries are missing: 6 to 6", "acme 1: it does not follow", "acme 1: it was changed", "acme 0: its head is missing", "all: there are 4 chains and should be 3"}},
		"taken out of the chain": {do: `UPDATE audit SET seq = 0, prev = '', hash = '' WHERE app = 'acme' AND seq = 3`,
			want: []string{"acme 4: the entry before it is missing"}}, // it is now the last entry
		"forged with hashes that fit": {more: func(t *testing.T, d *db.DB, s *tenancy.Service) {
			forge(t, d, s, func(e *audit.Entry) { e.Actor.Name = "eve" })
		}, want: []string{"acme 0: its last entry is not the one that its head names"}},
		"forged, and its head": {more: func(t *testing.T, d *db.DB, s *tenancy.Service) {
			forge(t, d, s, func(e *audit.Entry) { e.Actor.Name = "eve" })
			tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit_head SET hash = (SELECT hash`+chained+`6) WHERE app_id = (SELECT app_id`+chained+`6)`)
		}, want: []string{"acme 0: its head is missing, or not as this platform sealed it"}, both: true},
		"cut off with its head": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit_head SET seq = 5, hash = (SELECT hash`+chained+`5) WHERE app_id = (SELECT app_id`+chained+`5)`)
			tenancytest.ExecSQL(t, d.Platform(), `DELETE`+chained+`6`)
		}, want: []string{"acme 0: its head is missing, or not"}},
		"another's head": {do: `UPDATE audit_head SET seq = o.seq, hash = o.hash, seal = o.seal FROM (SELECT * FROM audit_head WHERE app_id = '') AS o
				WHERE audit_head.app_id = (SELECT app_id` + chained + `1)`,
			want: []string{"acme 0: its head is missing, or not"}},
		"headless": {do: `DELETE FROM audit_head WHERE app_id = (SELECT app_id` + chained + `1)`, want: []string{"acme 0: its head is missing, or not"}},
		"all of an app": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			tenancytest.ExecSQL(t, d.Platform(), `DELETE FROM audit_head WHERE app_id = (SELECT app_id`+chained+`1)`)
			tenancytest.ExecSQL(t, d.Platform(), `DELETE FROM audit WHERE app = 'acme'`)
		}, want: []string{"all: there are 2 chains and should be 3"}},
		"everything": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			tenancytest.ExecSQL(t, d.Platform(), `DELETE FROM audit_head`)
			tenancytest.ExecSQL(t, d.Platform(), `DELETE FROM audit`)
		}, want: []string{"all: the number of its chains is not as this platform sealed it"}, both: true},
		"the count as well": {more: func(t *testing.T, d *db.DB, _ *tenancy.Service) {
			tenancytest.ExecSQL(t, d.Platform(), `DELETE FROM audit_head WHERE app_id = (SELECT app_id`+chained+`1)`)
			tenancytest.ExecSQL(t, d.Platform(), `DELETE FROM audit WHERE app = 'acme'`)
			tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit_head SET seq = 2 WHERE app_id = '*'`)
		}, want: []string{"all: the number of its chains is not as this platform sealed it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each := dbtest.ForEachEngine
			if !tt.both {
				each = func(t *testing.T, f func(*testing.T, *db.DB)) { t.Helper(); f(t, dbtest.NewSQLite(t)) }
			}
			each(t, func(t *testing.T, d *db.DB) {
				s := tenancytest.NewService(t, d)
				acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
				writeEntries(t, s, acme.ID, 5)
				tenancytest.CreateApp(t, s, tenancy.Draft{Name: "globex"})
				writeEntries(t, s, "", 2)
				if flaws, n := verifyTrail(t, s, ""); flaws != nil || n != 9 {
					t.Fatalf("before: %d entries, %v", n, flaws)
				}
				if tt.more != nil {
					tt.more(t, d, s)
				} else {
					tenancytest.ExecSQL(t, d.Platform(), tt.do)
				}
				writeEntries(t, s, "", 1) // further entries are added
				got, _ := verifyTrail(t, s, "")
				if configured, _ := verifyTrail(t, s, "acme"); name == "removed all" && !slices.Equal(configured, got) {
					t.Errorf("of the app alone it is found that %q", configured)
				}
				same := len(got) == len(tt.want)
				for i := range min(len(got), len(tt.want)) {
					same = same && strings.HasPrefix(got[i], tt.want[i])
				}
				if !same {
					t.Errorf("it is found that\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
				}
			})
		})
	}
}

// TestBrokenChainIsNotContinued changes a head: entries added later must not hide it.
func TestBrokenChainIsNotContinued(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		writeEntries(t, s, acme.ID, 2)
		if err := s.Trail.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		tenancytest.ExecSQL(t, d.Platform(), `UPDATE audit_head SET seq = 1 WHERE app_id = $1`, string(acme.ID))
		writeEntries(t, s, acme.ID, 2)
		if err := s.Trail.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE seq = 0 AND app_id = $1`, string(acme.ID)); n != 2 {
			t.Errorf("%d entries are outside the chain, want 2", n)
		}
		if flaws, _ := verifyTrail(t, s, ""); len(flaws) != 1 || !strings.HasPrefix(flaws[0], "acme 0: its head is missing, or not") {
			t.Errorf("%v", flaws)
		}
	})
}

// TestChainUnderAnotherMasterKey rotates the master key: heads are sealed again, so that the former key can be removed.
func TestChainUnderAnotherMasterKey(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		next := bytes.Repeat([]byte{8}, 32)
		s := tenancytest.NewService(t, d)
		acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		writeEntries(t, s, acme.ID, 2)
		if flaws, n := verifyTrail(t, s, ""); flaws != nil || n != 3 {
			t.Fatalf("%d entries, %v", n, flaws)
		}
		both := tenancy.New(d, tenancytest.NewKeyring(t, next, tenancytest.MasterKey), tenancytest.NewBus(), tenancytest.NewOptions())
		tenancytest.RunUntil(t, both, func() bool {
			return tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit_head WHERE master_key <> $1`, tenancytest.NewKeyring(t, next).CurrentKeyID()) == 0
		})
		only := tenancy.New(d, tenancytest.NewKeyring(t, next), tenancytest.NewBus(), tenancytest.NewOptions())
		writeEntries(t, only, acme.ID, 1)
		if flaws, n := verifyTrail(t, only, ""); flaws != nil || n != 4 {
			t.Errorf("with the new key alone: %d entries, %v", n, flaws)
		}
		for line, err := range s.Trail.Export(t.Context(), audit.Filter{}) {
			if !errors.Is(err, keyring.ErrKeyMissing) {
				t.Errorf("the old key exports what it has not sealed: %+v, %v", line, err)
			}
		}
	})
}

// TestChainWithoutItsMasterKey continues and inspects chains in a process that lacks the master key of their heads: it
// reports the key and no tampering.
func TestChainWithoutItsMasterKey(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		keys, both := tenancytest.NewKeyring(t, tenancytest.MasterKey), tenancytest.NewKeyring(t, bytes.Repeat([]byte{8}, 32), tenancytest.MasterKey)
		var log bytes.Buffer
		former := audit.New(d, keys, slog.New(slog.NewTextHandler(&log, nil)))
		acme := tenancytest.CreateApp(t, tenancytest.NewService(t, d), tenancy.Draft{Name: "acme"})
		for _, do := range []func(context.Context) error{former.Seal, audit.New(d, both, nil).Reseal} {
			if err := do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := former.Record(t.Context(), audit.Entry{Action: "price.create", AppID: acme.ID}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := former.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), "lacks the master key with the id "+both.CurrentKeyID()); n != 1 || strings.Contains(log.String(), "tampered with") {
			t.Errorf("the log names the key %d times, want 1:\n%s", n, log.String())
		}
		found, err := audit.NewInspector(former, nil).InspectChains(t.Context(), true)
		if !errors.Is(err, keyring.ErrKeyMissing) || len(found) > 0 {
			t.Errorf("an inspection found %v, %v, want the missing key", found, err)
		}
		// An export could not say whether the heads are as they were sealed: it has no line and names the key.
		for line, err := range former.Export(t.Context(), audit.Filter{}) {
			if !errors.Is(err, keyring.ErrKeyMissing) || !strings.Contains(err.Error(), both.CurrentKeyID()) {
				t.Errorf("an export has %+v, %v, want the missing key", line, err)
			}
		}
	})
}

func TestExportFilters(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		for _, e := range []audit.Entry{
			{Actor: audit.Actor{Name: "ana"}, Action: "app.secret.put", AppID: acme.ID},
			{Actor: audit.Actor{Name: "bob"}, Action: "app.secret", AppID: acme.ID},
			{Actor: audit.Actor{Name: "ana"}, Action: "app.secrets", AppID: acme.ID},
			{Actor: audit.Actor{Name: "ana"}, Action: "price.create"},
		} {
			if err := s.Trail.Record(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		all, _, err := s.Trail.List(t.Context(), audit.Query{Size: 100})
		if err != nil {
			t.Fatal(err)
		}
		third := all[2].At // the entry of app.secret; entries are the newest first
		for name, tt := range map[string]struct {
			f    audit.Filter
			want []string
		}{
			"action below": {audit.Filter{Action: "app.secret"}, []string{"app.secret.put", "app.secret"}},
			"action":       {audit.Filter{Action: "app.create"}, []string{"app.create"}},
			"no pattern":   {audit.Filter{Action: "app_secret"}, nil},
			"actor":        {audit.Filter{Actor: "bob"}, []string{"app.secret"}},
			"since":        {audit.Filter{Since: third}, []string{"price.create", "app.secret", "app.secrets"}},
			"until":        {audit.Filter{Until: third}, []string{"app.create", "app.secret.put"}},
			"between":      {audit.Filter{App: "acme", Since: third, Until: third.Add(time.Microsecond)}, []string{"app.secret"}},
			"nobody":       {audit.Filter{App: "globex"}, nil},
		} {
			var got []string
			lines := exportTrail(t, s, tt.f)
			for _, l := range lines {
				if l.Entry != nil {
					got = append(got, l.Entry.Action)
				}
				if l.Head != nil {
					t.Errorf("%s: a part of a chain has a head", name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			if end := lines[len(lines)-1].End; end == nil || end.Part != (name != "nobody") {
				t.Errorf("%s ends with %+v", name, end)
			}
		}
		for _, err := range s.Trail.Export(t.Context(), audit.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			break // the consumer may stop
		}
	})
}

// TestTenantWritesItsTrailOnly checks that an app's handle can insert unchained entries of its own app, and read none.
func TestTenantWritesItsTrailOnly(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	s := tenancytest.NewService(t, d)
	alice, bob := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "alice"}), tenancytest.CreateApp(t, s, tenancy.Draft{Name: "bob"})
	write := func(as, about db.ID) error {
		return d.Tenant(as).RunTx(t.Context(), func(tx *db.Tx) error {
			return audit.Insert(t.Context(), tx, audit.Entry{Actor: audit.Actor{Name: "eve"}, Action: "test.do", App: "x", AppID: about})
		})
	}
	if err := write(alice.ID, alice.ID); err != nil {
		t.Errorf("her own: %v", err)
	}
	for what, err := range map[string]error{
		"another's":      write(alice.ID, bob.ID),
		"the platform's": write(alice.ID, ""),
		"nobody's":       write("", alice.ID),
		"chained": d.Tenant(alice.ID).RunTx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO audit (id, at, actor, action, app, app_id, detail, seq) VALUES ('x', 1, 'eve', 'a', 'x', $1, '{}', 9)`, string(alice.ID))
			return err
		}),
		"changed": d.Tenant(alice.ID).RunTx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE audit SET actor = 'nobody'`)
			return err
		}),
		"head": d.Tenant(alice.ID).RunTx(t.Context(), func(tx *db.Tx) error {
			return tx.Query(t.Context(), func(db.Row) error { return nil }, `SELECT * FROM audit_head`)
		}),
	} {
		if err == nil {
			t.Errorf("%s: a tenant may do that", what)
		}
	}
	if flaws, _ := verifyTrail(t, s, ""); flaws != nil {
		t.Error(errors.New(strings.Join(flaws, "; ")))
	}
}
