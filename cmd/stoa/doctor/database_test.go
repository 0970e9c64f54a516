package doctor

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// deployment is a migrated PostgreSQL database with a login that serves and owns nothing.
type deployment struct {
	admin, login string // names of the superuser of the tests and of the login
	adminURL     string
}

// newDeployment returns a deployment in which nothing is wrong.
func newDeployment(t *testing.T) deployment {
	t.Helper()
	d := deployment{admin: "postgres", login: "login_" + strings.ReplaceAll(agentsvc.NewID(), "-", ""), adminURL: dbtest.NewPostgresURL(t)}
	d.exec(t, `CREATE ROLE LOGIN_NAME LOGIN NOINHERIT; GRANT stoa_tenant, stoa_platform TO LOGIN_NAME; GRANT USAGE ON SCHEMA public TO LOGIN_NAME`)
	t.Cleanup(func() {
		dbtest.ExecSQL(t, d.adminURL, "DROP OWNED BY "+d.login+" CASCADE; DROP ROLE "+d.login)
	})
	return d
}

// exec executes statements as the superuser, with the login in the place of LOGIN_NAME.
func (d deployment) exec(t *testing.T, statements string) {
	t.Helper()
	dbtest.ExecSQL(t, d.adminURL, strings.ReplaceAll(statements, "LOGIN_NAME", d.login))
}

// url returns the URL of a login, with a password that the server of the tests does not ask for.
func (d deployment) url(t *testing.T, login string) *string {
	t.Helper()
	u, err := url.Parse(d.adminURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(login, password)
	return pointTo(u.String())
}

// ownTables makes the login the owner of all tables.
const ownTables = `GRANT CREATE ON SCHEMA public TO LOGIN_NAME; DO $$ DECLARE t REGCLASS; BEGIN
	FOR t IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP EXECUTE format('ALTER TABLE %s OWNER TO LOGIN_NAME', t); END LOOP; END $$`

// TestPostgres provokes each failure of a PostgreSQL database and its logins.
func TestPostgres(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, damage string // damage is the SQL that causes the failure
		flags        func(t *testing.T, d deployment, f *server.Flags)
		skew         time.Duration // of this process, in relation to the database
		check        string
		status       Status
		detail       string
	}{
		{name: "login", check: "login", status: OK, detail: "no superuser, no BYPASSRLS"},
		{name: "row security", check: "row_security", status: OK, detail: "forced on "},
		{name: "schema", check: "migrations", status: OK, detail: "the schema is at "},
		{name: "clock", check: "database_clock", status: OK, detail: "differ by less than 5s"},
		{name: "nothing encrypted", check: "master_key", status: OK, detail: "nothing is encrypted yet"},
		{name: "no extension", check: "pgvector", status: Skipped, detail: "not installed"},
		{name: "superuser", check: "login", status: Failure, detail: "postgres is a superuser",
			flags: func(t *testing.T, d deployment, f *server.Flags) { f.Database = d.url(t, d.admin) }},
		{name: "bypasses row security", damage: "ALTER ROLE LOGIN_NAME BYPASSRLS", check: "login", status: Failure, detail: "has BYPASSRLS"},
		{name: "without a role", damage: "REVOKE stoa_tenant FROM LOGIN_NAME", check: "login", status: Failure, detail: "may not act under the roles"},
		{name: "without a role no probe", damage: "REVOKE stoa_tenant FROM LOGIN_NAME", check: "row_security", status: Skipped, detail: "may not act"},
		{name: "inherits", damage: "ALTER ROLE LOGIN_NAME INHERIT; REVOKE stoa_platform FROM LOGIN_NAME; GRANT stoa_platform TO LOGIN_NAME", check: "login", status: Warning, detail: "also where no role is set"},
		{name: "serves as the owner", damage: ownTables, check: "migration_login", status: Warning, detail: "can turn their row-level security off"},
		{name: "no login migrates", check: "migration_login", status: Warning, detail: "may not create tables"},
		{name: "never migrates", check: "migration_login", status: Skipped, detail: "--no-migrate",
			flags: func(_ *testing.T, _ deployment, f *server.Flags) { f.NoMigrate = pointTo(true) }},
		{name: "another login migrates", check: "migration_login", status: OK, detail: "postgres changes the schema",
			flags: func(t *testing.T, d deployment, f *server.Flags) { f.MigrateDatabase = d.url(t, d.admin) }},
		{name: "the same login migrates", damage: ownTables, check: "migration_login", status: Warning, detail: "is the login that serves",
			flags: func(t *testing.T, d deployment, f *server.Flags) { f.MigrateDatabase = d.url(t, d.login) }},
		{name: "another database migrates", check: "migration_login", status: Failure, detail: "another database",
			flags: func(t *testing.T, d deployment, f *server.Flags) {
				f.MigrateDatabase = pointTo(strings.Replace(dbtest.NewPostgresURL(t), "postgres@", "postgres:"+password+"@", 1))
			}},
		{name: "not forced", damage: "ALTER TABLE task NO FORCE ROW LEVEL SECURITY; ALTER TABLE event DISABLE ROW LEVEL SECURITY", check: "row_security", status: Failure, detail: "not in force for event, task"},
		{name: "a policy for all", damage: `CREATE POLICY leak ON setting TO stoa_tenant USING (true); GRANT SELECT ON setting TO stoa_tenant; INSERT INTO setting VALUES ('a', 'b')`,
			check: "row_security", status: Failure, detail: "reads rows without a tenant, of setting"},
		{name: "a table is missing", damage: "DROP TABLE duty CASCADE", check: "row_security", status: Failure, detail: "tables exist"},
		{name: "older", damage: "UPDATE stoa_migrations SET version = 1", check: "migrations", status: Failure, detail: "the schema is at 1 of "},
		{name: "dirty", damage: "UPDATE stoa_migrations SET dirty = true", check: "migrations", status: Failure, detail: "was cut off"},
		{name: "newer", damage: "UPDATE stoa_migrations SET version = 9999", check: "migrations", status: Warning, detail: "a newer version of Stoa"},
		{name: "version not readable", damage: "REVOKE ALL ON stoa_migrations FROM stoa_platform", check: "migrations", status: Failure, detail: "cannot be read"},
		{name: "clock ahead", skew: -2 * time.Minute, check: "database_clock", status: Failure, detail: "ahead of this process: tokens are refused"},
		{name: "clock behind", skew: 20 * time.Second, check: "database_clock", status: Warning, detail: "behind this process"},
		{name: "nothing answers", check: "database", status: Failure, detail: "connection refused",
			flags: func(_ *testing.T, _ deployment, f *server.Flags) {
				f.Database = pointTo("postgres://stoa:" + password + "@127.0.0.1:1/stoa")
			}},
		{name: "no URL", check: "database", status: Failure, detail: "--database is no URL",
			flags: func(_ *testing.T, _ deployment, f *server.Flags) {
				f.Database = pointTo("postgres://stoa:" + password + "%zz@127.0.0.1/stoa")
			}},
		{name: "unknown login", check: "database", status: Failure, detail: "does not exist",
			flags: func(t *testing.T, d deployment, f *server.Flags) { f.Database = d.url(t, "no_such_login") }},
		{name: "empty", check: "migrations", status: Warning, detail: "there are no tables yet",
			flags: func(t *testing.T, _ deployment, f *server.Flags) {
				f.Database = pointTo(dbtest.NewEmptyPostgresURL(t))
			}},
		{name: "empty and not migrated", check: "migrations", status: Failure, detail: "the schema is at 0 of ",
			flags: func(t *testing.T, _ deployment, f *server.Flags) {
				f.Database, f.NoMigrate = pointTo(dbtest.NewEmptyPostgresURL(t)), pointTo(true)
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDeployment(t)
			if tt.damage != "" {
				d.exec(t, tt.damage)
			}
			flags := server.Flags{Database: d.url(t, d.login)}
			if tt.flags != nil {
				tt.flags(t, d, &flags)
			}
			i := newTestInspector(t, flags, nil)
			i.now = func() time.Time { return time.Now().Add(tt.skew) }
			wantCheck(t, i.checkDatabase(t.Context()), tt.check, tt.status, tt.detail)
		})
	}
}

// TestExtension checks what is reported of the extension vector, and that the tables of approximate indexes count for row-level
// security.
func TestExtension(t *testing.T) {
	t.Parallel()
	dbtest.NewVectorPostgres(t) // or skip the test
	const index = `SELECT stoa_create_vector_index('0123456789abcdef0123456789abcdef', 3)`
	for _, tt := range []struct {
		name, change string
		check        string
		status       Status
		detail       string
	}{
		{"installed", "", "pgvector", OK, "approximate indexes of large document stores: 0"},
		{"an index", index, "pgvector", OK, "approximate indexes of large document stores: 1"},
		{"old", "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'", "pgvector", Warning, "version 0.7.4 is installed and not used"},
		{"new", "UPDATE pg_extension SET extversion = '0.10.0' WHERE extname = 'vector'", "pgvector", OK, "version 0.10.0"},
		{"in another schema", "CREATE SCHEMA own; ALTER EXTENSION vector SET SCHEMA own", "pgvector", Warning, "may not use"},
		{"an index is protected", index, "row_security", OK, "all approximate indexes"},
		{"an index is not protected", index + "; ALTER TABLE chunk_hnsw_0123456789abcdef0123456789abcdef NO FORCE ROW LEVEL SECURITY", "row_security", Failure, "not in force for chunk_hnsw_"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDeployment(t)
			d.exec(t, "CREATE EXTENSION vector; "+tt.change)
			i := newTestInspector(t, server.Flags{Database: d.url(t, d.login)}, nil)
			wantCheck(t, i.checkDatabase(t.Context()), tt.check, tt.status, tt.detail)
		})
	}
}

// storeSigningKey stores a signing key in d, as a server does at its first start with the master key of the tests.
func storeSigningKey(t *testing.T, d *db.DB, s server.DatabaseSettings) {
	t.Helper()
	_, keys, _, err := s.FindSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authz.OpenBuiltInIssuer(t.Context(), d, keys, authz.BuiltInIssuerOptions{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
}

// otherKey is a master key that nothing was encrypted with.
const otherKey = "BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// TestMasterKey opens the signing key of a database with the master key that encrypted it, with another one, and with a
// damaged row. It is not parallel: it changes the environment.
func TestMasterKey(t *testing.T) {
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		i := newTestInspector(t, server.Flags{Database: pointTo(d.URL())}, nil)
		storeSigningKey(t, d, i.Settings.Database)
		check := func(status Status, detail string) {
			t.Helper()
			wantCheck(t, i.checkDatabase(t.Context()), "master_key", status, detail)
		}
		check(OK, "decrypts the signing keys; the number of rows under it is 1")
		key := os.Getenv(server.MasterKeyName)
		_, keys, _, err := i.Settings.Database.FindSecrets()
		if err != nil {
			t.Fatal(err)
		}
		sealedBy := keys.CurrentKeyID()
		t.Setenv(server.MasterKeyName, otherKey)
		check(Failure, "1 rows are encrypted with the master key "+sealedBy+", which STOA_MASTER_KEY does not have")
		t.Setenv(server.MasterKeyName, otherKey+","+key)
		check(OK, "1 rows are under a former key: keep it")
		t.Setenv(server.MasterKeyName, "")
		if d.Engine() == db.SQLite {
			check(Failure, "the database has encrypted rows, and there is no master key")
		} else {
			check(Skipped, "no master key is set")
			wantCheck(t, i.checkSecrets(t.Context()), "secrets", Failure, "are not both set")
		}
		t.Setenv(server.MasterKeyName, "short")
		check(Skipped, "the master key cannot be read")
		wantCheck(t, i.checkSecrets(t.Context()), "secrets", Failure, "must be 32 bytes in base64")
		t.Setenv(server.MasterKeyName, key)
		var b db.Batch
		b.Exec(nil, "UPDATE signing_key SET id = 'another'")
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		check(Failure, "the signing key another cannot be decrypted")
		t.Setenv(server.AdminSecretName, "short")
		wantCheck(t, i.checkSecrets(t.Context()), "secrets", Failure, "it needs at least 32")
	})
}

// TestChangesNothing checks that the checks neither create nor change a file in the folder of a SQLite database, whether a
// server uses it or not.
func TestChangesNothing(t *testing.T) {
	t.Parallel()
	address := dbtest.NewSQLiteURL(t)
	folder := filepath.Dir(strings.TrimPrefix(address, "sqlite://"))
	inspect := func() {
		t.Helper()
		before := dbtest.HashFolder(t, folder)
		report := newTestInspector(t, server.Flags{Database: &address, Host: pointTo("127.0.0.1")}, nil).inspect(context.Background())
		if report.Status == Failure {
			t.Errorf("a check failed:\n%s", report.Text())
		}
		wantCheck(t, report.Checks, "migrations", OK, "the schema is at ")
		if diff := cmp.Diff(before, dbtest.HashFolder(t, folder)); diff != "" {
			t.Errorf("the folder has changed (-before +after):\n%s", diff)
		}
	}
	inspect()
	dbtest.Open(t, address)
	inspect()

	missing := "sqlite://" + filepath.Join(t.TempDir(), "stoa.db")
	wantCheck(t, newTestInspector(t, server.Flags{Database: &missing}, nil).checkDatabase(t.Context()), "database", Warning, "there is no file")
	memory := "sqlite://:memory:"
	wantCheck(t, newTestInspector(t, server.Flags{Database: &memory}, nil).checkDatabase(t.Context()), "database", Warning, "in memory")
}
