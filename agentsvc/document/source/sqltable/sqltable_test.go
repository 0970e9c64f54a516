package sqltable_test

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/document/source/sqltable"
	"stoa/agentsvc/egress"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an empty database of one engine, with a login that may do everything in it.
type server struct {
	db.ExternalDB
	// exec executes statements.
	exec func(t *testing.T, statements ...string)
	// quote is around names.
	quote string
}

// forEachEngine runs f on each engine with an empty database.
func forEachEngine(t *testing.T, f func(t *testing.T, s server)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, newSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, newPostgres(t)) })
	t.Run("mysql", func(t *testing.T) { t.Parallel(); f(t, newMySQL(t)) })
}

// newExec returns a function that executes statements on a data source.
func newExec(driver, dsn string) func(t *testing.T, statements ...string) {
	return func(t *testing.T, statements ...string) {
		t.Helper()
		d, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		for _, s := range statements {
			if _, err := d.ExecContext(context.Background(), s); err != nil {
				t.Fatalf("%.200s: %v", s, err)
			}
		}
	}
}

func newSQLite(t *testing.T) server {
	path := filepath.Join(t.TempDir(), "docs.db")
	return server{db.ExternalDB{Driver: db.SQLite, Database: path, MaxConns: 2, MaxIdle: 1}, newExec("sqlite", "file:"+path), `"`}
}

func newPostgres(t *testing.T) server {
	at := dbtest.NewEmptyPostgresURL(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(u.Port())
	return server{
		db.ExternalDB{Driver: db.Postgres, Host: u.Hostname(), Port: port, Database: strings.TrimPrefix(u.Path, "/"), Username: u.User.Username(), MaxConns: 2, MaxIdle: 1},
		func(t *testing.T, statements ...string) {
			t.Helper()
			dbtest.ExecSQL(t, at, strings.Join(statements, ";"))
		}, `"`,
	}
}

// newMySQL returns a database on the server that .ci/mariadb starts.
func newMySQL(t *testing.T) server {
	dsn := os.Getenv("STOA_TEST_MYSQL")
	if dsn == "" {
		dbtest.SkipMissing(t, "STOA_TEST_MYSQL names no MySQL; run `make test`, or .ci/mariadb go test ...")
	}
	name := "t_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:20]
	admin := newExec("mysql", dsn)
	admin(t, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4", "CREATE USER "+name+"@'%' IDENTIFIED BY 'pw-"+name+"'", "GRANT SELECT ON "+name+".* TO "+name+"@'%'")
	t.Cleanup(func() { admin(t, "DROP DATABASE "+name, "DROP USER "+name+"@'%'") })
	address := dsn[strings.IndexByte(dsn, '(')+1 : strings.IndexByte(dsn, ')')]
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(port)
	return server{
		db.ExternalDB{Driver: db.MySQL, Host: host, Port: n, Database: name, Username: name, Password: "pw-" + name, MaxConns: 2, MaxIdle: 1},
		newExec("mysql", dsn+name), "`",
	}
}

func newSource(t *testing.T, g db.ExternalDB, dialer db.Dialer, tables ...*config.Table) *sqltable.Source {
	t.Helper()
	if dialer.Dial == nil {
		dialer.Dial = (&net.Dialer{}).DialContext
	}
	s, err := sqltable.New(sqltable.Options{Config: &config.SQLSource{Tables: tables}, Database: g, Dialer: dialer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// listed is what the tests compare of a document.
type listed struct {
	ID, Title, Text string
	Access          document.Access
}

// list returns the documents of a complete listing, and their versions.
func list(t *testing.T, s source.Source) (items []listed, versions map[string]string) {
	t.Helper()
	versions = map[string]string{}
	for item, err := range s.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, listed{item.ID, item.Title, open(t, item), item.Access})
		if versions[item.ID] = item.Version; item.Version == "" {
			t.Errorf("%s has no version", item.ID)
		}
	}
	return items, versions
}

func open(t *testing.T, item source.Item) string {
	t.Helper()
	f, err := item.Open(t.Context())
	if err != nil {
		return "error: " + err.Error()
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func listError(t *testing.T, s source.Source) string {
	t.Helper()
	for _, err := range s.List(t.Context()) {
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

func TestRows(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, s server) {
		q := func(name string) string {
			return s.quote + strings.ReplaceAll(name, s.quote, s.quote+s.quote) + s.quote
		}
		odd := "odd " + s.quote + "; DROP TABLE x; --"
		s.exec(t, "CREATE TABLE "+q(odd)+" (id BIGINT PRIMARY KEY, price DECIMAL(10,2), title VARCHAR(300), "+q("the body")+" TEXT, readers VARCHAR(200), changed VARCHAR(50))",
			"INSERT INTO "+q(odd)+" VALUES (2, 1.50, 'Zwei', 'line 1\nline 2', NULL, 'a'), (-9007199254740993, 2, '  Ärger\n', NULL, 'hr, subject:ann', 'a'), "+
				"(9007199254740993, NULL, NULL, 'x', '{\"roles\": [\"b\", \"a\"], \"subjects\": [\"zoe\"]}', 'a'), (9007199254740994, NULL, 't', '', '', NULL), "+
				"(10, NULL, 't', '', '[\"x\"]', 'a'), (11, NULL, 't', '', '{\"role\": [\"x\"]}', 'a'), (12, NULL, 't', '', ' , ', 'a')")
		const unreadable = "error: the column readers says in no known form who may read the row: "
		noCaller := document.Access{Roles: []string{"(access is unreadable)"}}
		want := []listed{
			{odd + "/-9007199254740993", "Ärger", "price: 2.00\ntitle:   Ärger\n\n", document.Access{Subjects: []string{"ann"}, Roles: []string{"hr"}}},
			{odd + "/2", "Zwei", "price: 1.50\ntitle: Zwei\nthe body: line 1\nline 2\n", document.Access{}},
			{odd + "/10", "", unreadable + "JSON must be an object with the lists subjects and roles", noCaller},
			{odd + "/11", "", unreadable + "a JSON object may have the lists of text subjects and roles only", noCaller},
			{odd + "/12", "", unreadable + "it holds no name", noCaller},
			{odd + "/9007199254740993", "", "the body: x\n", document.Access{Subjects: []string{"zoe"}, Roles: []string{"a", "b"}}},
			{odd + "/9007199254740994", "t", "title: t\nthe body: \n", document.Access{}},
		}
		if s.Driver == db.SQLite { // it has no decimals
			want[0].Text, want[1].Text = strings.Replace(want[0].Text, "2.00", "2", 1), strings.Replace(want[1].Text, "1.50", "1.5", 1)
		}
		table := &config.Table{Table: odd, Columns: []string{"price", "title", "the body"}, IDColumn: "id", AccessColumn: "readers"}
		for _, updated := range []string{"", "changed"} {
			table.UpdatedColumn = updated
			got, _ := list(t, newSource(t, s.ExternalDB, db.Dialer{}, table))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("updated_column %q:\n%s", updated, diff)
			}
		}
	})
}

// TestVersions checks which changes are a new version, with and without a column of changes.
func TestVersions(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, s server) {
		s.exec(t, "CREATE TABLE a (id VARCHAR(20) PRIMARY KEY, body TEXT, readers VARCHAR(20), changed TIMESTAMP NULL)",
			"INSERT INTO a VALUES ('text', 'x', NULL, '2024-01-01 10:00:00'), ('time', 'x', NULL, '2024-01-01 10:00:00'), ('access', 'x', NULL, '2024-01-01 10:00:00'), "+
				"('same', 'x', NULL, '2024-01-01 10:00:00'), ('no time', 'x', NULL, NULL)")
		byContent := newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id", AccessColumn: "readers"})
		byTime := newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id", AccessColumn: "readers", UpdatedColumn: "changed"})
		_, content1 := list(t, byContent)
		_, time1 := list(t, byTime)
		s.exec(t, "UPDATE a SET body = 'y' WHERE id IN ('text', 'no time')", "UPDATE a SET changed = '2024-01-02 10:00:00' WHERE id = 'time'", "UPDATE a SET readers = 'hr' WHERE id = 'access'")
		_, content2 := list(t, byContent)
		_, time2 := list(t, byTime)
		changed := func(before, after map[string]string) (out []string) {
			for id, version := range after {
				if before[id] != version {
					out = append(out, strings.TrimPrefix(id, "a/"))
				}
			}
			slices.Sort(out)
			return out
		}
		if diff := cmp.Diff([]string{"access", "no time", "text"}, changed(content1, content2)); diff != "" {
			t.Errorf("by content:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"access", "no time", "time"}, changed(time1, time2)); diff != "" {
			t.Errorf("by time:\n%s", diff)
		}
	})
}

// TestPages checks that rows of many pages are listed once each, for several types of ids, with rows that come and go
// meanwhile, and that large rows make small pages.
func TestPages(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, s server) {
		long := map[db.Engine]string{db.Postgres: "repeat('x', %d)", db.MySQL: "repeat('x', %d)", db.SQLite: "replace(hex(zeroblob(%d)), '00', 'x')"}[s.Driver]
		for _, c := range []struct{ kind, value string }{
			{"BIGINT", "%d"}, {"VARCHAR(20)", "'k%d'"}, {"TIMESTAMP", "'2024-01-01 10:%02d:00'"}, {"DECIMAL(20,5)", "%d.5"},
			{map[bool]string{true: "UUID", false: "VARCHAR(36)"}[s.Driver == db.Postgres], "'00000000-0000-0000-0000-%012d'"},
		} {
			count := 450
			if c.kind == "TIMESTAMP" {
				count = 60
			}
			s.exec(t, "CREATE TABLE p (id "+c.kind+" PRIMARY KEY, body VARCHAR(100))")
			var rows []string
			for i := range count {
				rows = append(rows, fmt.Sprintf("("+c.value+", 'text')", i))
			}
			s.exec(t, "INSERT INTO p VALUES "+strings.Join(rows, ", "))
			seen := map[string]int{}
			for item, err := range newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "p", Columns: []string{"body"}, IDColumn: "id"}).List(t.Context()) {
				if err != nil {
					t.Fatalf("%s: %v", c.kind, err)
				}
				if seen[item.ID]++; len(seen) == 20 {
					s.exec(t, fmt.Sprintf("DELETE FROM p WHERE id = "+c.value, 0))
				}
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("%s: %s is listed %d times", c.kind, id, n)
				}
			}
			if len(seen) != count {
				t.Errorf("%s: %d rows are listed, want %d", c.kind, len(seen), count)
			}
			s.exec(t, "DROP TABLE p")
		}
		s.exec(t, "CREATE TABLE large (id INTEGER PRIMARY KEY, body "+map[bool]string{true: "LONGTEXT", false: "TEXT"}[s.Driver == db.MySQL]+")")
		for i := range 6 {
			s.exec(t, fmt.Sprintf("INSERT INTO large VALUES (%d, "+long+")", i, 6<<20+i))
		}
		s.exec(t, fmt.Sprintf("INSERT INTO large VALUES (100, "+long+")", 10<<20+1))
		for _, updated := range []string{"", "id"} {
			var got []string
			for item, err := range newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "large", Columns: []string{"body"}, IDColumn: "id", UpdatedColumn: updated}).List(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				text := open(t, item)
				got = append(got, fmt.Sprint(item.ID, " ", len(text), " ", strings.HasPrefix(text, "error: the columns of the row have 10485761 bytes, more than 10485760")))
			}
			want := []string{"large/0 6291463 false", "large/1 6291464 false", "large/2 6291465 false", "large/3 6291466 false", "large/4 6291467 false", "large/5 6291468 false", "large/100 69 true"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// TestBadRows checks rows without an id, ids that do not name rows, and values that are no text.
func TestBadRows(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, s server) {
		s.exec(t, "CREATE TABLE a (id VARCHAR(600), body TEXT)", "INSERT INTO a VALUES (NULL, 'x'), (NULL, 'y'), ('1', 'x'), ('"+strings.Repeat("k", 600)+"', 'x')")
		table := &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"}
		got, _ := list(t, newSource(t, s.ExternalDB, db.Dialer{}, table))
		want := []listed{
			{ID: "a/(rows without id)", Text: "error: 2 rows of the table a have no value in the column id; give them one, or name a view without them"},
			{ID: "a/1", Title: "x", Text: "body: x\n"},
			{ID: source.ShortenID("a/" + strings.Repeat("k", 600)), Text: "error: the value of the column id makes an id of more than 512 bytes or is no UTF-8"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		s.exec(t, "INSERT INTO a VALUES ('1', 'z')")
		const notUnique = "the column id of the table a is not unique: two rows have the same id, or the database compares their ids as equal; its documents stay as they are"
		if got := listError(t, newSource(t, s.ExternalDB, db.Dialer{}, table)); got != notUnique {
			t.Errorf("got %q", got)
		}
		var rows []string
		for i := range 300 {
			rows = append(rows, fmt.Sprintf("('n%03d', 'x')", i))
		}
		// The page ends between the two equal ids.
		s.exec(t, "DELETE FROM a", "INSERT INTO a VALUES "+strings.Join(rows, ", ")+", ('n199', 'again')")
		if got := listError(t, newSource(t, s.ExternalDB, db.Dialer{}, table)); got != notUnique {
			t.Errorf("got %q", got)
		}
		s.exec(t, "DROP TABLE a")
		if got := listError(t, newSource(t, s.ExternalDB, db.Dialer{}, table)); !strings.HasPrefix(got, "the table a cannot be read: ") {
			t.Errorf("got %q", got)
		}
	})
}

// TestBinary checks bytes in a column. SQLite and MySQL store them in a column of text, too.
func TestBinary(t *testing.T) {
	t.Parallel()
	s := newSQLite(t)
	s.exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, body TEXT)", "INSERT INTO a VALUES (1, CAST(x'ff00' AS TEXT)), (2, CAST(x'6100' AS TEXT))")
	got, _ := list(t, newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"}))
	for _, item := range got {
		if item.Text != "error: a column holds binary data, or text that is no UTF-8" {
			t.Errorf("%+q", item)
		}
	}
}

// TestNothingIsWritten checks that the database is not changed, not even by a view that would.
func TestNothingIsWritten(t *testing.T) {
	t.Parallel()
	s := newPostgres(t)
	s.exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, body TEXT)", "INSERT INTO a VALUES (1, 'x')",
		"CREATE FUNCTION evil() RETURNS INTEGER LANGUAGE plpgsql AS 'BEGIN DELETE FROM a; RETURN 1; END'", "CREATE VIEW v AS SELECT evil() AS id, 'x' AS body")
	if got := listError(t, newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "public.v", Columns: []string{"body"}, IDColumn: "id"})); got !=
		"the table public.v cannot be read: the server is read-only; its documents stay as they are" {
		t.Errorf("got %q", got)
	}
	lite := newSQLite(t)
	if got := listError(t, newSource(t, lite.ExternalDB, db.Dialer{}, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"})); !strings.Contains(got, "does not exist") {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(lite.Database); err == nil {
		t.Error("a file was created")
	}
	lite.exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, body TEXT)")
	before, _ := os.ReadFile(lite.Database)
	list(t, newSource(t, lite.ExternalDB, db.Dialer{}, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"}))
	if after, _ := os.ReadFile(lite.Database); string(after) != string(before) {
		t.Error("the file was changed")
	}
}

// TestPlatformFile checks that a file in which a server keeps its data is refused.
func TestPlatformFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stoa.db")
	platform, err := db.Open(t.Context(), "sqlite://"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = platform.Close() }()
	s := newSource(t, db.ExternalDB{Driver: db.SQLite, Database: path, MaxConns: 1}, db.Dialer{}, &config.Table{Table: "sqlite_schema", Columns: []string{"sql"}, IDColumn: "name"})
	if got := listError(t, s); !strings.Contains(got, "holds the data of a server") {
		t.Errorf("got %q", got)
	}
}

// TestTenantFile checks a file that a tenant wrote: views are read, virtual tables are refused, and an endless view ends.
func TestTenantFile(t *testing.T) {
	t.Parallel()
	s := newSQLite(t)
	dialer := db.Dialer{TenantFile: &db.TenantFileRules{OpenFolder: func() (*os.File, error) { return os.Open(filepath.Dir(s.Database)) }}}
	s.exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, body TEXT)", "INSERT INTO a VALUES (1, 'x')", "CREATE VIEW v AS SELECT id, body FROM a")
	got, _ := list(t, newSource(t, s.ExternalDB, dialer, &config.Table{Table: "v", Columns: []string{"body"}, IDColumn: "id"}))
	if diff := cmp.Diff([]listed{{ID: "v/1", Title: "x", Text: "body: x\n"}}, got); diff != "" {
		t.Error(diff)
	}
	s.exec(t, "CREATE VIEW endless AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS body FROM n")
	endless := newSource(t, s.ExternalDB, dialer, &config.Table{Table: "endless", Columns: []string{"body"}, IDColumn: "id"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, err := range endless.List(ctx) {
		if err == nil || err.Error() != "the table endless cannot be read: no answer in time; its documents stay as they are" {
			t.Errorf("an endless view: %v", err)
		}
	}
	s.exec(t, "CREATE VIRTUAL TABLE f USING fts5(body)")
	if got := listError(t, newSource(t, s.ExternalDB, dialer, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"})); !strings.Contains(got, "the virtual table \"f\"") {
		t.Errorf("got %q", got)
	}
}

// TestServerAway checks servers that are not there, refuse the login, or may not be called, and that no error has the
// password.
func TestServerAway(t *testing.T) {
	t.Parallel()
	table := &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	const password = "canary-password"
	for _, driver := range []db.Engine{db.Postgres, db.MySQL} {
		g := db.ExternalDB{Driver: driver, Host: "127.0.0.1", Port: port, Database: "x", Username: "u", Password: password, MaxConns: 1}
		for want, dialer := range map[string]db.Dialer{
			"the connection was refused": {Dial: egress.New(egress.Options{PrivateNetwork: true}).DialContext},
			`the address of "127.0.0.1" is not allowed: only public addresses may be called`: {Dial: egress.New(egress.Options{}).DialContext},
		} {
			want = "the table a cannot be read: " + want + "; its documents stay as they are"
			if got := listError(t, newSource(t, g, dialer, table)); got != want {
				t.Errorf("%s: got %q, want %q", driver, got, want)
			}
		}
	}
	for _, s := range []server{newPostgres(t), newMySQL(t)} {
		wrong := s.ExternalDB
		wrong.Username, wrong.Password = "stranger", password
		got := listError(t, newSource(t, wrong, db.Dialer{}, table))
		if !strings.Contains(got, "the login was refused") || strings.Contains(got, password) {
			t.Errorf("%s: got %q", s.Driver, got)
		}
	}
	mysql := newMySQL(t)
	mysql.Database = "mysql"
	if got := listError(t, newSource(t, mysql.ExternalDB, db.Dialer{}, table)); !strings.Contains(got, "the login was refused") {
		t.Errorf("got %q", got)
	}
}

// TestMySQLTLS checks that each ssl_mode does what it says on a real server.
func TestMySQLTLS(t *testing.T) {
	t.Parallel()
	s := newMySQL(t)
	pem, err := os.ReadFile(os.Getenv("STOA_TEST_MYSQL_CA"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	// The view shows whether the connection that reads it is encrypted.
	s.exec(t, "CREATE SQL SECURITY INVOKER VIEW v AS SELECT 1 AS id, VARIABLE_VALUE AS cipher FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Ssl_cipher'")
	for _, c := range []struct {
		mode, host string
		roots      *x509.CertPool
		encrypted  bool
		refused    bool
	}{
		{"", "127.0.0.1", nil, false, false}, {"disable", "127.0.0.1", nil, false, false},
		{"allow", "127.0.0.1", nil, true, false}, {"prefer", "127.0.0.1", nil, true, false}, {"require", "127.0.0.1", nil, true, false},
		{"verify-ca", "127.0.0.1", roots, true, false}, {"verify-ca", "localhost", nil, false, true},
		{"verify-full", "localhost", roots, true, false}, {"verify-full", "127.0.0.1", roots, false, true},
	} {
		g := s.ExternalDB
		g.SSLMode, g.Host = c.mode, c.host
		src := newSource(t, g, db.Dialer{Roots: c.roots}, &config.Table{Table: "v", Columns: []string{"cipher"}, IDColumn: "id"})
		if c.refused {
			if got := listError(t, src); got != "the table v cannot be read: no trusted TLS connection could be made; its documents stay as they are" {
				t.Errorf("%s at %s: %q", c.mode, c.host, got)
			}
			continue
		}
		got, _ := list(t, src)
		if encrypted := len(got) == 1 && len(got[0].Text) > len("cipher: \n"); encrypted != c.encrypted {
			t.Errorf("%s at %s: %+v", c.mode, c.host, got)
		}
	}
}

// TestStatementTimeout checks that the server of MySQL ends a statement that takes too long.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	s := newMySQL(t)
	s.exec(t, "CREATE SQL SECURITY INVOKER VIEW slow AS SELECT SLEEP(60) AS id, 'x' AS body")
	began := time.Now()
	got := listError(t, newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "slow", Columns: []string{"body"}, IDColumn: "id"}))
	if took := time.Since(began); !strings.Contains(got, "no answer in time") || took > 30*time.Second {
		t.Errorf("after %s: %q", took, got)
	}
}

// TestUnchangedIsCheap checks that with an updated column a listing does not read the text.
func TestUnchangedIsCheap(t *testing.T) {
	t.Parallel()
	s := newPostgres(t)
	s.exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, body TEXT, changed INTEGER)", "INSERT INTO a SELECT n, repeat(md5(n::text), 1000), 1 FROM generate_series(1, 100) n")
	var received atomic.Int64
	dialer := db.Dialer{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return countingConn{conn, &received}, err
	}}
	src := newSource(t, s.ExternalDB, dialer, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id", UpdatedColumn: "changed"})
	for _, err := range src.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if received.Load() > 200_000 { // the text has 3.2 MB
		t.Errorf("%d bytes were read", received.Load())
	}
}

// countingConn counts what is read from a connection.
type countingConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s := newSQLite(t)
	s.exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, body TEXT)")
	src := newSource(t, s.ExternalDB, db.Dialer{}, &config.Table{Table: "a", Columns: []string{"body"}, IDColumn: "id"})
	if err := src.Wait(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if err := source.Close(src); err != nil {
		t.Error(err)
	}
	if got := listError(t, src); got != "the source is closed" {
		t.Errorf("got %q", got)
	}
}
