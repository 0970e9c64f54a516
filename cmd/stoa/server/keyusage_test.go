package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
	"stoa/tenancy/tenancytest"
)

// TestSealedColumns compares the columns that are counted with those of the schema.
func TestSealedColumns(t *testing.T) {
	t.Parallel()
	var got, want []string
	var b db.Batch
	b.Query(func(r db.Row) error {
		var table, column string
		err := r.Scan(&table, &column)
		got = append(got, table+"."+column)
		return err
	}, `SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name IN ('master', 'master_key') ORDER BY 1`)
	if err := dbtest.NewSQLite(t).Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, s := range sealedColumns {
		want = append(want, s.table+"."+s.column)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestKeyUsage counts rows under the present, a former and an unknown master key, and logs when the former one is not
// needed any more.
func TestKeyUsage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		keys, err := keyring.New(bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32))
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range []string{keys.CurrentKeyID(), keys.FormerKeyIDs()[0], keys.FormerKeyIDs()[0], "lost"} {
			executeSQL(t, d, `INSERT INTO signing_key (generation, id, seed, master, signs_from, created_at) VALUES ($1, $2, $3, $4, 0, 0)`, i, fmt.Sprint("key", i), []byte{1}, key)
		}
		got, err := CountKeyUsage(t.Context(), d, keys)
		i := slices.IndexFunc(got, func(u KeyUsage) bool { return u.Table == "signing_key" })
		if want := (KeyUsage{"signing_key", 1, 2, 1}); err != nil || i < 0 || got[i] != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		if line := firstLine(t, d, keys); !strings.Contains(line, "keep it in STOA_MASTER_KEY") || !strings.Contains(line, "rows=2") {
			t.Errorf("with rows under the former key the log has %q", line)
		}
		executeSQL(t, d, `UPDATE signing_key SET master = $1 WHERE master <> 'lost'`, keys.CurrentKeyID())
		if err := audit.New(d, keys, nil).Reseal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if line := firstLine(t, d, keys); !strings.Contains(line, "may be removed from STOA_MASTER_KEY") {
			t.Errorf("without rows under the former key the log has %q", line)
		}
	})
}

// TestMasterKeyAudit changes the master key in the three steps of docs/operations.md, with restarts: the audit trail has
// one entry when the new key begins to encrypt and one when no row needs the former key, with ids and never the keys.
func TestMasterKeyAudit(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		before, after := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		start := func(masters ...[]byte) *keyring.Keyring {
			t.Helper()
			keys, err := keyring.New(masters...)
			if err != nil {
				t.Fatal(err)
			}
			if len(masters) > 1 {
				if line := firstLine(t, d, keys); strings.Contains(line, "level=WARN") {
					t.Error(line)
				}
			}
			return keys
		}
		changing, err := keyring.New(after, before)
		if err != nil {
			t.Fatal(err)
		}
		trail := audit.New(d, changing, nil)
		checkEntries := func(want ...string) {
			t.Helper()
			entries, _, err := trail.List(t.Context(), audit.Query{Size: 10, Filter: audit.Filter{Action: "master_key"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range slices.Backward(entries) {
				detail, err := json.Marshal(e.Detail)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Actor.Name+" "+e.Action+" "+string(detail))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the audit trail (-want +got):\n%s", diff)
			}
		}
		old, next := start(before).CurrentKeyID(), start(after).CurrentKeyID()
		executeSQL(t, d, `INSERT INTO signing_key (generation, id, seed, master, signs_from, created_at) VALUES (1, 'key', $1, $2, 0, 0)`, []byte{1}, old)
		step := func(what string, masters ...[]byte) {
			t.Helper()
			keys := tenancytest.NewKeyring(t, masters...)
			if line := firstLine(t, d, keys); !strings.Contains(line, what) {
				t.Errorf("the log has %q, want a line with %q", line, what)
			}
		}
		step("put the new one first", before, after)
		checkEntries()
		changed := fmt.Sprintf(`stoa master_key.change {"former":[%q],"master_key":%q}`, old, next)
		for range 2 {
			start(after, before)
			checkEntries(changed)
		}
		executeSQL(t, d, `UPDATE signing_key SET master = $1`, next)
		if err := trail.Reseal(t.Context()); err != nil {
			t.Fatal(err)
		}
		step("may be removed", after, before)
		third := bytes.Repeat([]byte{3}, 32)
		step("put the new one first", after, third)
		done := fmt.Sprintf(`stoa master_key.complete {"former":[%q],"master_key":%q}`, old, next)
		for range 2 {
			start(after, before)
			checkEntries(changed, done)
		}
	})
}

// TestMasterKeyAuditWithoutLook ends the process with both keys before it has seen that no row is under the former key:
// the start with the new key alone records the end of the change, once, and not while rows are under another key.
func TestMasterKeyAuditWithoutLook(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		before, after := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		both, alone := tenancytest.NewKeyring(t, after, before), tenancytest.NewKeyring(t, after)
		old, next := both.FormerKeyIDs()[0], both.CurrentKeyID()
		checkAfterStart := func(keys *keyring.Keyring, want ...string) {
			t.Helper()
			trail := audit.New(d, keys, nil)
			if err := recordKeyChange(t.Context(), d, keys, trail); err != nil {
				t.Fatal(err)
			}
			entries, _, err := trail.List(t.Context(), audit.Query{Size: 10, Filter: audit.Filter{Action: "master_key"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range slices.Backward(entries) {
				got = append(got, fmt.Sprint(e.Action, " ", e.Detail["master_key"], e.Detail["former"]))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the audit trail (-want +got):\n%s", diff)
			}
		}
		executeSQL(t, d, `INSERT INTO signing_key (generation, id, seed, master, signs_from, created_at) VALUES (1, 'key', $1, $2, 0, 0)`, []byte{1}, old)
		checkAfterStart(tenancytest.NewKeyring(t, before))
		changed, done := fmt.Sprint("master_key.change ", next, []string{old}), fmt.Sprint("master_key.complete ", next, []string{old})
		checkAfterStart(both, changed)
		checkAfterStart(alone, changed)
		executeSQL(t, d, `UPDATE signing_key SET master = $1`, next)
		if err := audit.New(d, both, nil).Reseal(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			checkAfterStart(alone, changed, done)
		}
	})
}

// TestMasterKeyAuditOfProcesses starts whole servers with the keys of each step: a starting server encrypts the signing
// keys again before it serves, and the trail has the change all the same.
func TestMasterKeyAuditOfProcesses(t *testing.T) {
	encode := func(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }
	folder := t.TempDir()
	url, port, host := "sqlite://"+filepath.Join(folder, "stoa.db"), 0, "127.0.0.1"
	start := func(masters ...byte) {
		t.Helper()
		var all []string
		for _, b := range masters {
			all = append(all, encode(b))
		}
		t.Setenv(AdminSecretName, strings.Repeat("x", 32))
		t.Setenv(MasterKeyName, strings.Join(all, ","))
		app, err := LoadDefaultApp("")
		if err != nil {
			t.Fatal(err)
		}
		s, err := ResolveSettings(Flags{Database: &url, Port: &port, Host: &host}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := New(t.Context(), Options{Version: "v0", Settings: s, DefaultApp: app, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		// What the loops of Serve do: they encrypt the rest again, and look at the former keys. The first line ends that.
		if err := h.Apps.Trail.Reseal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(masters) > 1 {
			firstLine(t, h.Storage.DB, h.Storage.keyring)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, masters := range [][]byte{{1}, {1, 2}, {2, 1, 3}, {3, 2}} {
		start(masters...)
	}
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	keys := tenancytest.NewKeyring(t, bytes.Repeat([]byte{3}, 32))
	entries, _, err := audit.New(d, keys, nil).List(t.Context(), audit.Query{Size: 10, Filter: audit.Filter{Action: "master_key"}})
	if err != nil {
		t.Fatal(err)
	}
	id := func(b byte) string { return tenancytest.NewKeyring(t, bytes.Repeat([]byte{b}, 32)).CurrentKeyID() }
	var got []string
	for _, e := range slices.Backward(entries) {
		got = append(got, fmt.Sprint(e.Action, " ", e.Detail["master_key"], e.Detail["former"]))
	}
	want := []string{
		fmt.Sprint("master_key.change ", id(2), []string{id(1)}), fmt.Sprint("master_key.complete ", id(2), []string{id(1)}),
		fmt.Sprint("master_key.change ", id(3), []string{id(2)}), fmt.Sprint("master_key.complete ", id(3), []string{id(2)}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the audit trail (-want +got):\n%s", diff)
	}
}

// firstLine returns the first line that watchFormerKeys logs.
func firstLine(t *testing.T, d *db.DB, keys *keyring.Keyring) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &cancellingWriter{cancel: cancel}
	if err := watchFormerKeys(ctx, d, keys, audit.New(d, keys, nil), slog.New(slog.NewTextHandler(w, nil))); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	return w.String()
}

// cancellingWriter keeps what is written and cancels a context at the first line.
type cancellingWriter struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (w *cancellingWriter) Write(p []byte) (int, error) {
	w.cancel()
	return w.Buffer.Write(p)
}

// executeSQL executes a statement as the platform.
func executeSQL(t *testing.T, d *db.DB, sql string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, sql, args...)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}
