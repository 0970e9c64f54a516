package runtime

import (
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// TestDocumentSources checks that the sources of a tenant's stores reach what it was granted, and nothing else.
func TestDocumentSources(t *testing.T) {
	t.Parallel()
	granted, outside := t.TempDir(), t.TempDir()
	write := func(folder, name string) {
		t.Helper()
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of the test
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(granted, "docs"), "a.md")
	write(outside, "secret.md")
	if err := os.Symlink(outside, filepath.Join(granted, "link")); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{granted, outside} {
		d, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "x.db"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"CREATE TABLE article (id INTEGER PRIMARY KEY, body TEXT)", "INSERT INTO article VALUES (1, 'x')"} {
			if _, err := d.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		_ = d.Close()
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[{"id":"page"}]`)) }))
	defer srv.Close()
	tenant := Tenant{ID: db.ID("acme"), Name: "acme", Grants: grant.ParseList([]string{"filesystem=" + granted, "sqlite"})}
	folderOf := func(path string) *config.DocumentStore {
		return &config.DocumentStore{Source: &config.Source{Type: "directory", Path: path}}
	}
	tableOf := func(database string) *config.DocumentStore {
		return &config.DocumentStore{Source: &config.Source{Type: "sql", SQL: &config.SQLSource{Database: database, Tables: []*config.Table{{Table: "article", Columns: []string{"body"}, IDColumn: "id"}}}}}
	}
	api := &config.DocumentStore{Source: &config.Source{Type: "api", API: &config.APISource{URL: srv.URL, IDField: "id"}}}
	for name, c := range map[string]struct {
		store          *config.DocumentStore
		operator       bool
		privateNetwork bool
		want           []string
		err            string // a part
	}{
		"upload":                    {store: &config.DocumentStore{Source: &config.Source{Type: "upload"}}},
		"granted folder":            {store: folderOf(filepath.Join(granted, "docs")), want: []string{"a.md"}},
		"folder outside":            {store: folderOf(outside), err: "lies below none of the folders"},
		"link out of the grant":     {store: folderOf(filepath.Join(granted, "link")), err: "cannot be opened"},
		"operator's folder":         {store: folderOf(outside), operator: true, want: []string{"secret.md", "x.db"}},
		"granted file":              {store: tableOf("own"), want: []string{"article/1"}},
		"file outside":              {store: tableOf("outside"), err: "lies below none of the folders"},
		"operator's file":           {store: tableOf("outside"), operator: true, want: []string{"article/1"}},
		"a database with a problem": {store: tableOf("none"), err: errDependencyInvalid.Error()},
		"private address":           {store: api, err: "is not allowed"},
		"private address, granted":  {store: api, privateNetwork: true, want: []string{"page"}},
		"a type that is not known":  {store: &config.DocumentStore{Source: &config.Source{Type: "ftp"}}, err: `no source of the type "ftp"`},
		"an address that is no one": {store: &config.DocumentStore{Source: &config.Source{Type: "api", API: &config.APISource{URL: "x"}}}, err: "no address"},
	} {
		tenant := tenant
		tenant.DefaultApp, tenant.PrivateNetwork = c.operator, c.privateNetwork
		public, private := egress.New(egress.Options{}), egress.New(egress.Options{PrivateNetwork: true})
		cfg := &config.Config{Databases: map[string]*config.Database{
			"own":     {Driver: "sqlite", Database: filepath.Join(granted, "x.db"), MaxConns: 2},
			"outside": {Driver: "sqlite", Database: filepath.Join(outside, "x.db"), MaxConns: 2},
		}}
		shared := &build{cfg: cfg, tenant: tenant, log: slog.New(slog.DiscardHandler)}
		b := &databaseBuilder{newHostAccess(shared, Host{PublicEgress: public, PrivateEgress: private}, RunLimits{}), &ExternalDatabases{}}
		var got []string
		s, err := b.newDocumentSource(c.store, nil)
		if s != nil {
			for item, failed := range s.List(t.Context()) {
				if err = failed; err == nil {
					got = append(got, item.ID)
				}
			}
		}
		if err == nil && c.err != "" || err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if diff := cmp.Diff(c.want, slices.Clip(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := closeAll(b.closers); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		public.Close()
		private.Close()
	}
}
