package transfer

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/grant"
	"stoa/tenancy/tenancytest"
)

const passphrase = "correct horse battery"

// cell is an installation.
type cell struct {
	*Service
	d    *db.DB
	apps *tenancy.Service
}

// newCell returns an installation on d with a master key of its own.
func newCell(t *testing.T, d *db.DB, master byte, o Options) *cell {
	t.Helper()
	keys := tenancytest.NewKeyring(t, bytes.Repeat([]byte{master}, 32))
	apps := tenancy.New(d, keys, tenancytest.NewBus(), tenancytest.NewOptions())
	if o.Issuer == "" {
		o.Issuer = "stoa"
	}
	o.Folder = t.TempDir()
	return &cell{New(d, keys, apps, o), d, apps}
}

// fill creates an app and inserts rows, with canary in every text, into each table of a file that the creation left empty.
func (c *cell) fill(t *testing.T, name, canary string, suspend bool) tenancy.App {
	t.Helper()
	app := tenancytest.CreateApp(t, c.apps, tenancy.Draft{
		Name: name, DisplayName: canary, Config: []byte(`{"needs": ["KEY"], "key": "` + canary + `"}`), Secrets: map[string]string{"KEY": canary},
		Labels: map[string]string{"canary": canary},
	})
	if suspend {
		var err error
		if app, err = c.apps.SuspendApp(t.Context(), tenancytest.Actor, name, "move"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.apps.Trail.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range c.readTables(t).exported {
		if c.count(t, &table, app.ID) > 0 {
			continue
		}
		most := 3
		if table.name == "app_role" || table.name == "invoice_party" || table.name == "ledger" {
			most = 1 // the app's id is the whole key
		}
		for n := range most {
			values := []any{string(app.ID)}
			for i, column := range table.columns {
				values = append(values, c.newValue(t, &table, column, app.ID, canary, n*100+i))
			}
			tenancytest.ExecSQL(t, c.d.Platform(), table.insertSQL(1), values...)
		}
	}
	return app
}

// invoices has the last number of an invoice in any installation of the tests.
var invoices atomic.Int64

// newValue returns a value that occurs in no other row.
func (c *cell) newValue(t *testing.T, table *table, column column, app db.ID, canary string, n int) any {
	t.Helper()
	switch {
	case column.name == masterKeyColumn:
		return c.keys.CurrentKeyID()
	case column.name == sealedColumns[table.name]:
		sealed, err := c.keys.SealValue(string(app), "field", []byte(canary))
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(sealed)
	case column.name == "due_at" && table.name == "approval" && n < 100:
		return nil
	case column.name == "roles":
		return `[]`
	case column.name == "owner_iss":
		return "stoa"
	}
	switch column.kind {
	case kindText:
		return fmt.Sprintf("%s \"'\\\n\u2028\u00e4 %d %d", canary, n, len(app))
	case kindNumber:
		if strings.HasSuffix(column.name, "number") { // unique among all apps
			return invoices.Add(1)
		}
		return int64(1)<<60 + int64(n)
	case kindBoolean:
		return n%2 == 0
	}
	if n < 100 && column.name != "hash" {
		return []byte{}
	}
	return []byte{0, 255, byte(n)}
}

func (c *cell) readTables(t *testing.T) *catalog {
	t.Helper()
	var tables *catalog
	err := c.d.Platform().ReadTx(t.Context(), func(tx *db.Tx) (err error) {
		tables, err = readCatalog(t.Context(), tx, c.d.Engine())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func (c *cell) count(t *testing.T, table *table, app db.ID) int {
	t.Helper()
	return tenancytest.CountRows(t, c.d.Platform(), "SELECT COUNT(*) FROM "+quote(table.name)+" WHERE "+quote(table.owner)+" = $1", string(app))
}

// rows returns the rows about an app, sorted, by table; of all tables with left. Sealed values are shown without their
// master key, and entries of the audit trail that the import or the export wrote are left out.
func (c *cell) rows(t *testing.T, app db.ID, left bool) map[string][]string {
	t.Helper()
	tables := c.readTables(t)
	list, all := tables.exported, map[string][]string{}
	if left {
		list = tables.all
	}
	for _, table := range list {
		reader := newRowReader(&table)
		var b db.Batch
		b.Query(func(row db.Row) error {
			_, values, err := reader.read(row)
			if err != nil {
				return err
			}
			values = slices.Clone(values)
			if i := table.index("action"); table.name == auditTable && strings.HasPrefix(values[i].(string), "app.") && strings.Contains(values[i].(string), "port") {
				return nil
			}
			if i := table.index(sealedColumns[table.name]); i >= 0 {
				values[i] = c.describeSealed(t, values[i], app)
				values[table.index(masterKeyColumn)] = "master"
			}
			named := make([]string, len(values))
			for i, v := range values {
				named[i] = fmt.Sprintf("%s %#v", table.columns[i].name, v)
			}
			slices.Sort(named) // the engines have the columns in another order
			all[table.name] = append(all[table.name], strings.Join(named, "\n"))
			return nil
		}, table.selectSQL(), string(app))
		if err := c.d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatalf("%s: %v", table.name, err)
		}
		slices.Sort(all[table.name])
	}
	return all
}

// describeSealed opens a sealed value with the cell's own keys.
func (c *cell) describeSealed(t *testing.T, v any, app db.ID) any {
	t.Helper()
	if key, ok := v.([]byte); ok {
		fields, err := c.keys.NewFieldCipher(string(app), key)
		if err != nil {
			t.Fatal(err)
		}
		return fields.Hasher().HashValue("the same data key")
	}
	raw, err := base64.StdEncoding.DecodeString(v.(string))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := c.keys.OpenValue(string(app), "field", raw)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func (c *cell) export(t *testing.T, name string) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := c.Export(t.Context(), tenancytest.Actor, name, passphrase, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// engines are the engines of a journey: from one to the other and back.
func engines(t *testing.T) []*db.DB {
	t.Helper()
	return []*db.DB{dbtest.NewSQLite(t), dbtest.NewPostgres(t), dbtest.NewSQLite(t)}
}

// TestMove moves an app from SQLite to PostgreSQL and on to SQLite: every row is the same, except what belongs to an
// installation, and no row of another app is in a file.
func TestMove(t *testing.T) {
	t.Parallel()
	var file []byte
	var before map[string][]string
	var app tenancy.App
	for i, d := range engines(t) {
		c := newCell(t, d, byte(i+1), Options{})
		other := c.fill(t, "other", fmt.Sprintf("CANARY-B%d", i), false)
		otherRows := c.rows(t, other.ID, true)
		if i == 0 {
			app = c.fill(t, "acme", "canary-a", true)
		} else {
			summary, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			if summary.App.ID != app.ID || summary.App.Status != tenancy.Suspended || summary.total() < 100 {
				t.Errorf("imported %s, %s, %d rows", summary.App.ID, summary.App.Status, summary.total())
			}
			after := c.rows(t, app.ID, false)
			if i == 1 { // the numbers of invoices are those of an installation
				delete(before, invoiceTable)
				delete(after, invoiceTable)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("after the import on %s (-before +after)\n%s", d.Engine(), diff)
			}
			if diff := cmp.Diff(otherRows, c.rows(t, other.ID, true)); diff != "" {
				t.Errorf("the import changed another app (-before +after)\n%s", diff)
			}
			c.checkWorks(t, app)
		}
		before = c.rows(t, app.ID, false)
		file = c.export(t, "acme")
		if bytes.Contains(file, []byte("CANARY")) || bytes.Contains(file, []byte(other.ID)) {
			t.Errorf("the file from %s has something of the other app", d.Engine())
		}
		if text := string(file); strings.Contains(text, `"needs"`) || !strings.Contains(text, "canary-a") {
			t.Errorf("the file has a configuration in clear text, or none of the app's texts")
		}
	}
}

// checkWorks checks that the imported app can be read, changed and exported, and that its audit trail verifies.
func (c *cell) checkWorks(t *testing.T, app tenancy.App) {
	t.Helper()
	if err := c.apps.Trail.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := c.apps.LoadSnapshot(t.Context(), app.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if secret, ok := snap.Secret("KEY"); secret != "canary-a" || !ok {
		t.Errorf("the secret is %q", secret)
	}
	if _, err := c.apps.ResumeApp(t.Context(), tenancytest.Actor, "acme", "moved"); err != nil {
		t.Error(err)
	}
	if _, err := c.apps.SuspendApp(t.Context(), tenancytest.Actor, "acme", ""); err != nil {
		t.Error(err)
	}
	c.verifyTrail(t)
}

// verifyTrail verifies the whole audit trail of the installation.
func (c *cell) verifyTrail(t *testing.T) {
	t.Helper()
	if err := c.apps.Trail.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := newTrailVerifier(t)
	for line, err := range c.apps.Trail.Export(t.Context(), noFilter) {
		if err != nil {
			t.Fatal(err)
		}
		v.AddLine(line)
	}
	v.Close()
}

// TestVectorIndexTables: the tables of approximate indexes, which have columns that no file can have, keep no app from being exported.
func TestVectorIndexTables(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	dbtest.ExecSQL(t, d.URL(), `SELECT stoa_create_vector_index('0123456789abcdef0123456789abcdef', 3)`)
	tables := newCell(t, d, 1, Options{}).readTables(t)
	if !slices.ContainsFunc(tables.all, func(table table) bool { return strings.HasPrefix(table.name, derivedPrefix) }) {
		t.Error("the catalogue has no table of an approximate index")
	}
	for _, table := range tables.exported {
		if strings.HasPrefix(table.name, derivedPrefix) || table.name == "vector_index" {
			t.Errorf("%s is exported", table.name)
		}
	}
}

// TestTables fails for each table with the id of an app that is not decided upon: exported, or left out with a reason.
func TestTables(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		tables := newCell(t, d, 1, Options{}).readTables(t)
		var got []string
		for _, table := range tables.exported {
			got = append(got, table.name)
		}
		want := strings.Fields(decidedTables)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the tables of an exported app have changed: decide whether a new one belongs to an app that moves "+
				"(then list it here, and check what its columns mean in another installation) or to this installation (then add it to leftOut) (-want +got)\n%s", diff)
		}
		for name, reason := range leftOut {
			if reason == "" || !slices.ContainsFunc(tables.all, func(table table) bool { return table.name == name }) {
				t.Errorf("leftOut has %q: %q; there is no such table with an app's id, or no reason", name, reason)
			}
		}
		for name := range sealedColumns {
			if tables.find(name) == nil {
				t.Errorf("sealedColumns has %s, which is not exported", name)
			}
		}
	})
}

// decidedTables are the tables whose rows were looked at and belong to an app that moves.
const decidedTables = `app app_mark app_plan app_revision app_role app_secret api_key approval audit budget budget_balance budget_event
	call_cancel chunk chunk_vector credential credit document document_body document_live document_reader document_store event
	hidden_revision index_pass invoice invoice_basis invoice_party ledger ledger_entry ledger_posting memory receiver removed_chunk run schedule sent
	session_summary session_turn stored_sample task tool_pin trigger_start usage usage_billed`

// TestExportRefused tries to export what cannot be exported.
func TestExportRefused(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		c := newCell(t, d, 1, Options{})
		c.fill(t, "active", "x", false)
		busy := c.fill(t, "busy", "y", true)
		tenancytest.ExecSQL(t, d.Platform(), `UPDATE run SET state = 'running' WHERE tenant = $1 AND task = (SELECT MIN(task) FROM run WHERE tenant = $1)`, string(busy.ID))
		for name, tt := range map[string]struct {
			app, passphrase string
			want            error
		}{
			"unknown":            {"nobody", passphrase, agentsvc.CodeNotFound},
			"default":            {"default", passphrase, agentsvc.CodeInvalid},
			"active":             {"active", passphrase, agentsvc.CodePrecondition},
			"a run under way":    {"busy", passphrase, agentsvc.CodePrecondition},
			"a short passphrase": {"busy", "short", agentsvc.CodeInvalid},
		} {
			var out bytes.Buffer
			_, err := c.Export(t.Context(), tenancytest.Actor, tt.app, tt.passphrase, &out)
			tenancytest.WantErr(t, err, tt.want)
			if out.Len() > 0 {
				t.Errorf("%s: %d bytes were written", name, out.Len())
			}
		}
	})
}

// edit is how a hostile file differs from an exported one. Its digest is made anew, as one who knows the passphrase can.
type edit func(lines []string) []string

// replaceIn replaces text in the lines of a table and its rows.
func replaceIn(table, old, replacement string) edit {
	return func(lines []string) []string {
		in := false
		for i, line := range lines {
			if strings.HasPrefix(line, "{") {
				in = strings.HasPrefix(line, `{"table":"`+table+`"`) || table == "" && i == 0
			}
			if in {
				lines[i] = strings.ReplaceAll(line, old, replacement)
			}
		}
		return lines
	}
}

func insertBeforeEnd(more ...string) edit {
	return func(lines []string) []string { return slices.Insert(lines, len(lines)-1, more...) }
}

// apply returns a file with the edit and a digest that fits.
func (e edit) apply(t *testing.T, file []byte) []byte {
	t.Helper()
	lines := e(strings.Split(strings.TrimSuffix(string(file), "\n"), "\n"))
	r := newFileReader(strings.NewReader(lines[0] + "\n"))
	var h header
	if err := r.next(); err != nil {
		t.Fatal(err)
	}
	if err := r.decode(&h); err != nil {
		return []byte(strings.Join(lines, "\n") + "\n")
	}
	keys, err := deriveKeys(passphrase, h.Salt)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := newFileWriter(&out, keys)
	for _, line := range lines[:len(lines)-1] {
		if strings.HasPrefix(line, "[") {
			w.rows++
		}
		if err := w.write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.end(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// hostileFile is a file that must be refused, with a part of the error.
type hostileFile struct {
	name string
	file []byte
	want string
}

// TestHostileFiles imports files that are not as they were exported: each is refused and leaves nothing.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	app := source.fill(t, "acme", "canary-a", true)
	file := source.export(t, "acme")
	lines := bytes.SplitAfter(file, []byte("\n"))
	changed := bytes.Replace(file, []byte("canary-a"), []byte("canary-b"), 1)
	files := []hostileFile{
		{"empty", nil, "the file ends here"},
		{"no file of an app", []byte("hello\n"), "is not an exported app"},
		{"cut off in a row", file[:len(file)/2], "the file ends here"},
		{"cut off after a row", bytes.Join(lines[:len(lines)/2], nil), "the file ends here"},
		{"without the last line", bytes.Join(lines[:len(lines)-2], nil), "the file ends here"},
		{"a changed byte", changed, "was changed after the export"},
		{"something behind the end", append(slices.Clone(file), '\n'), "does not fit"},
		{"a row less", bytes.Join(slices.Delete(slices.Clone(lines), len(lines)/2, len(lines)/2+1), nil), "file"},
		{"too many bytes", bytes.Repeat([]byte("x"), 1<<20+1), "larger than"},
		{"too many rows", edit(func(lines []string) []string {
			at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"table":"app_mark"`) })
			return slices.Insert(lines, at+1, slices.Repeat([]string{lines[at+1]}, 1001)...)
		}).apply(t, file), "more than 1000 rows"},
		{"a newer schema", replaceIn("", `"schema":`, `"schema":9`).apply(t, file), "of the schema, this installation knows up to "},
		{"a newer format", replaceIn("", `"stoa_app":1,`, `"stoa_app":2,"more":true,`).apply(t, file), "version 2 of the format"},
		{"the platform's id", replaceIn("", string(app.ID), "").apply(t, file), "not that of an app"},
		{"the default app's id", replaceIn("", string(app.ID), "default").apply(t, file), "not that of an app"},
		{"all chains", replaceIn("", string(app.ID), "*").apply(t, file), "not that of an app"},
		{"a column with an app's id", replaceIn("event", `"columns":["task"`, `"columns":["tenant"`).apply(t, file), "has no column"},
		{"a name with quotes", replaceIn("app", `"acme"`, `"ac'me\" --"`).apply(t, file), "lower-case letters"},
		{"a table with quotes", insertBeforeEnd(`{"table":"app\" --","columns":["name"]}`).apply(t, file), "is not one of an exported app"},
		{"a column with quotes", insertBeforeEnd().andThen(replaceIn("event", `"kind"`, `"kind\") VALUES (1) --"`)).apply(t, file), "has no column"},
		{"a table of the platform", insertBeforeEnd(`{"table":"signing_key","columns":["id"]}`, `["x"]`).apply(t, file), "is not one of an exported app"},
		{"a table that is left out", insertBeforeEnd(`{"table":"budget_gone","columns":["budget","since","amount"]}`, `["x",1,1]`).apply(t, file), "is not one of an exported app"},
		{"a table twice", insertBeforeEnd(`{"table":"app_mark","columns":["subject","not_before"]}`).apply(t, file), "a second time"},
		{"two rows of app", edit(func(lines []string) []string { return slices.Insert(lines, 2, lines[2]) }).apply(t, file), "second row of table app"},
		{"no value", edit(func(lines []string) []string {
			at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"table":"ledger"`) })
			lines[at+1] = "[null" + lines[at+1][strings.IndexByte(lines[at+1], ','):]
			return lines
		}).apply(t, file), "has not the type"},
		{"a row of many values", insertBeforeEnd(`["x"`+strings.Repeat(",1", 200_000)+"]").apply(t, file), "has 200001 values"},
		{"a table of many columns", insertBeforeEnd(`{"table":"event","columns":["x"`+strings.Repeat(`,""`, 100_000)+"]}").apply(t, file), "no row"},
		{"a wrong type", replaceIn("event", "[", `[{},`).apply(t, file), "line"},
		{"an entry of the audit trail that was changed", replaceIn("audit", "app.create", "app.delete").apply(t, file), "is not as it was chained"},
		{"an active app", replaceIn("app", `"suspended"`, `"active"`).apply(t, file), "is not suspended"},
		{"another issuer's key", replaceIn("app", `,"",""`, `,"","https://idp\nstoa\n"`).apply(t, file), "key of the app's issuer"},
		{"no configuration", replaceIn("app_revision", "[1,", "[7,").apply(t, file), "is missing or cannot be opened"},
		{"grants", replaceIn("app", `"[]","","{`, `"[\"private_network\"]","","{`).apply(t, file), "choose keep or drop"},
		{"a row that is there twice", edit(func(lines []string) []string {
			at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"table":"usage_billed"`) })
			return slices.Insert(lines, at+1, lines[at+1])
		}).apply(t, file), "already"},
	}
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		c := newCell(t, d, 2, Options{MaxRows: 1000, MaxBytes: 1 << 20})
		victim := c.fill(t, "victim", "CANARY-B", false)
		before := c.rows(t, victim.ID, true)
		everything := c.countEverything(t)
		stolen := replaceIn("", string(app.ID), string(victim.ID)).apply(t, file)
		for _, tt := range append(slices.Clone(files), hostileFile{"another app's id", stolen, "cannot be opened"}) {
			t.Run(tt.name, func(t *testing.T) {
				_, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(tt.file))
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want one with %q", err, tt.want)
				}
				if diff := cmp.Diff(everything, c.countEverything(t)); diff != "" {
					t.Errorf("the import left rows (-before +after)\n%s", diff)
				}
			})
		}
		_, err := c.Import(t.Context(), tenancytest.Actor, "another passphrase", "", bytes.NewReader(file))
		tenancytest.WantInvalid(t, err, "passphrase")
		if diff := cmp.Diff(before, c.rows(t, victim.ID, true)); diff != "" {
			t.Errorf("another app has changed (-before +after)\n%s", diff)
		}
		if _, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file)); err != nil {
			t.Fatalf("the file itself: %v", err)
		}
		_, err = c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file))
		tenancytest.WantErr(t, err, agentsvc.CodeExists)
		c.verifyTrail(t)
	})
}

// andThen returns both edits as one.
func (e edit) andThen(next edit) edit {
	return func(lines []string) []string { return next(e(lines)) }
}

// countEverything counts the rows of each table about apps, of all apps.
func (c *cell) countEverything(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, table := range c.readTables(t).all {
		all[table.name] = tenancytest.CountRows(t, c.d.Platform(), "SELECT COUNT(*) FROM "+quote(table.name))
	}
	return all
}

// TestOlderSchema imports a file of an older schema, which lacks columns: they have their defaults. A file of this schema
// must have all of them.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	tenancytest.CreateApp(t, source.apps, tenancy.Draft{Name: "acme"})
	app, err := source.apps.SuspendApp(t.Context(), tenancytest.Actor, "acme", "")
	if err != nil {
		t.Fatal(err)
	}
	tenancytest.ExecSQL(t, source.d.Platform(), `INSERT INTO session_turn (tenant, owner_iss, owner_sub, context_id, position, task, body, turn, epoch, at)
		VALUES ($1, '', 'ana', 'c', 1, 't', '{}', 7, 7, 7)`, string(app.ID))
	file := source.export(t, "acme")
	lacking := edit(func(lines []string) []string {
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"table":"session_turn"`) })
		lines[at] = `{"table":"session_turn","columns":["owner_iss","owner_sub","context_id","position","task","body"]}`
		lines[at+1] = `["","ana","c",1,"t","{}"]`
		return lines
	})
	schema := fmt.Sprintf(`"schema":%d`, source.readTables(t).schema)
	c := newCell(t, dbtest.NewSQLite(t), 2, Options{})
	_, err = c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(lacking.apply(t, file)))
	if err == nil || !strings.Contains(err.Error(), "lacks columns") {
		t.Errorf("a file of this schema: %v", err)
	}
	older := lacking.andThen(replaceIn("", schema, `"schema":1`)).apply(t, file)
	if _, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(older)); err != nil {
		t.Fatal(err)
	}
	if n := tenancytest.CountRows(t, c.d.Platform(), `SELECT COUNT(*) FROM session_turn WHERE tenant = $1 AND turn = 0 AND epoch = 0`, string(app.ID)); n != 1 {
		t.Errorf("%d turns with defaults, want 1", n)
	}
}

// TestZeroBytes moves a text with a zero byte, which SQLite stores and PostgreSQL does not.
func TestZeroBytes(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	tenancytest.CreateApp(t, source.apps, tenancy.Draft{Name: "acme"})
	app, err := source.apps.SuspendApp(t.Context(), tenancytest.Actor, "acme", "")
	if err != nil {
		t.Fatal(err)
	}
	tenancytest.ExecSQL(t, source.d.Platform(), `INSERT INTO event (tenant, task, seq, at, kind, body) VALUES ($1, 't', 1, 1, 'k', $2)`, string(app.ID), "a\x00b")
	file := source.export(t, "acme")
	_, err = newCell(t, dbtest.NewPostgres(t), 2, Options{}).Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file))
	if err == nil || !strings.Contains(err.Error(), "zero byte") {
		t.Errorf("error %v", err)
	}
	c := newCell(t, dbtest.NewSQLite(t), 2, Options{})
	if _, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file)); err != nil {
		t.Error(err)
	}
	if n := tenancytest.CountRows(t, c.d.Platform(), `SELECT COUNT(*) FROM event WHERE tenant = $1 AND body = $2`, string(app.ID), "a\x00b"); n != 1 {
		t.Errorf("%d events with the text, want 1", n)
	}
}

// TestForeignNumbers checks that numbers of imported invoices are negative, in order, and other ones for each app.
func TestForeignNumbers(t *testing.T) {
	t.Parallel()
	one, next, most := foreignNumber("a", int64(1)).(int64), foreignNumber("a", int64(2)).(int64), foreignNumber("a", int64(maxForeignNumber)).(int64)
	if other := foreignNumber("b", int64(1)); one >= next || next >= most || most >= 0 || other == one {
		t.Errorf("numbers %d, %d, %d, of another app %d", one, next, most, other)
	}
	if again := foreignNumber("a", one); again != one {
		t.Errorf("a number that was imported becomes %d", again)
	}
}

// TestBusy begins more imports than a process may have at a time.
func TestBusy(t *testing.T) {
	t.Parallel()
	c := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	for range maxRunning {
		_, end, err := c.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	_, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", strings.NewReader(""))
	tenancytest.WantErr(t, err, agentsvc.CodeBusy)
	_, err = c.Export(t.Context(), tenancytest.Actor, "acme", passphrase, io.Discard)
	tenancytest.WantErr(t, err, agentsvc.CodeBusy)
}

// TestGrants imports an app that may use powers of the host.
func TestGrants(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	tenancytest.CreateApp(t, source.apps, tenancy.Draft{Name: "acme", Grants: grant.ParseList([]string{"private_network"})})
	if _, err := source.apps.SuspendApp(t.Context(), tenancytest.Actor, "acme", ""); err != nil {
		t.Fatal(err)
	}
	file := source.export(t, "acme")
	for choice, want := range map[Grants]int{KeepGrants: 1, DropGrants: 0} {
		c := newCell(t, dbtest.NewSQLite(t), 2, Options{})
		if _, err := c.Import(t.Context(), tenancytest.Actor, passphrase, choice, bytes.NewReader(file)); err != nil {
			t.Fatal(err)
		}
		app, err := c.apps.LoadApp(t.Context(), "acme")
		if err != nil || len(app.Grants) != want {
			t.Errorf("%s: the app has %d grants (%v)", choice, len(app.Grants), err)
		}
	}
}

// TestIssuers imports an app from an installation whose issuer has another name: callers stay the owners of their
// conversations, and what is encrypted for an owner by the former name is left out.
func TestIssuers(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	app := source.fill(t, "acme", "x", true)
	c := newCell(t, dbtest.NewSQLite(t), 2, Options{Issuer: "https://eu.example.com"})
	summary, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(source.export(t, "acme")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"credential": 3}, summary.Dropped); diff != "" {
		t.Errorf("dropped (-want +got)\n%s", diff)
	}
	for _, name := range []string{"task", "session_turn", "memory", "usage"} {
		n := tenancytest.CountRows(t, c.d.Platform(), `SELECT COUNT(*) FROM `+name+` WHERE tenant = $1 AND owner_iss = 'https://eu.example.com'`, string(app.ID))
		if n != 3 {
			t.Errorf("%s: %d rows have the owners of this installation, want 3", name, n)
		}
	}
}

// TestFormerTokens imports an app whose name belonged to another one: tokens that name it are revoked.
func TestFormerTokens(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	app := source.fill(t, "acme", "x", true)
	file := source.export(t, "acme")
	c := newCell(t, dbtest.NewSQLite(t), 2, Options{})
	tenancytest.CreateApp(t, c.apps, tenancy.Draft{Name: "acme"})
	_, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file))
	tenancytest.WantErr(t, err, agentsvc.CodeExists)
	if err := c.apps.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if n := tenancytest.CountRows(t, c.d.Platform(), `SELECT COUNT(*) FROM app_mark WHERE tenant = $1 AND subject = ''`, string(app.ID)); n != 1 {
		t.Errorf("%d revocations of all tokens", n)
	}
}

// TestReturn tries to bring back an app where it was deleted: its books and its audit trail are still there.
func TestReturn(t *testing.T) {
	t.Parallel()
	c := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	c.fill(t, "acme", "x", true)
	file := c.export(t, "acme")
	if err := c.apps.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Import(t.Context(), tenancytest.Actor, passphrase, "", bytes.NewReader(file))
	if err == nil || !strings.Contains(err.Error(), "outlive a deletion") {
		t.Errorf("error %v", err)
	}
}

// TestInterrupted ends the context of an import while rows are inserted: nothing is left.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	source := newCell(t, dbtest.NewSQLite(t), 1, Options{})
	source.fill(t, "acme", "x", true)
	file := source.export(t, "acme")
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newCell(t, d, 2, Options{InTx: func(ctx context.Context, _ *db.Tx, _ db.ID) error {
			cancel()
			return ctx.Err()
		}})
		before := c.countEverything(t)
		_, err := c.Import(ctx, tenancytest.Actor, passphrase, "", bytes.NewReader(file))
		tenancytest.WantErr(t, err, context.Canceled)
		after := c.countEverything(t)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("rows were left (-before +after)\n%s", diff)
		}
		if n := slices.Max(slices.Collect(maps.Values(after))); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}
