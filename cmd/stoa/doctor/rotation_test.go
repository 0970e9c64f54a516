package doctor

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stoa/agentsvc"
	"stoa/cmd/stoa/server"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestRotateDatabaseLogin changes the login that serves as docs/operations/rotation.md does: a second login, both at work,
// the first one dropped.
func TestRotateDatabaseLogin(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	suffix := strings.ReplaceAll(agentsvc.NewID(), "-", "")
	roles := migrations.Roles{Owner: "owner_" + suffix, Login: "second_" + suffix, Backup: "backup_" + suffix}
	statements, err := roles.SQL()
	if err != nil {
		t.Fatal(err)
	}
	dbtest.ExecSQL(t, d.adminURL, statements)
	first, second := d.url(t, d.login), d.url(t, roles.Login)
	for n, address := range []*string{first, second} {
		i := newTestInspector(t, server.Flags{Database: address, NoMigrate: pointTo(true)}, nil)
		checks := i.checkDatabase(t.Context())
		wantCheck(t, checks, "login", OK, "no superuser")
		wantCheck(t, checks, "row_security", OK, "forced on ")
		serving, err := db.Open(t.Context(), *address, db.Options{MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		var b db.Batch
		dbtest.InsertTask(&b, "acme", string(rune('a'+n)))
		if err := serving.Tenant("acme").Write(t.Context(), &b); err != nil {
			t.Errorf("the login %d cannot write: %v", n+1, err)
		}
		if err := serving.Close(); err != nil {
			t.Error(err)
		}
	}
	d.exec(t, "DROP OWNED BY LOGIN_NAME; DROP ROLE LOGIN_NAME")
	wantCheck(t, newTestInspector(t, server.Flags{Database: first}, nil).checkDatabase(t.Context()), "database", Failure, "does not exist")
	wantCheck(t, newTestInspector(t, server.Flags{Database: second}, nil).checkDatabase(t.Context()), "row_security", OK, "forced on ")
	// Its cleanup drops the login of the deployment again.
	d.exec(t, "CREATE ROLE LOGIN_NAME LOGIN")
	for _, name := range []string{roles.Owner, roles.Login, roles.Backup} {
		dbtest.ExecSQL(t, d.adminURL, "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name)
	}
}

// TestRotateRedisPassword changes the password of Redis as docs/operations/rotation.md does: a second password, both
// accepted, the first one removed.
func TestRotateRedisPassword(t *testing.T) {
	t.Parallel()
	address := startRedis(t)
	client := redis.NewClient(&redis.Options{Addr: address, Password: password})
	defer func() { _ = client.Close() }()
	change := func(rule string) {
		t.Helper()
		if err := client.Do(t.Context(), "ACL", "SETUSER", "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(secret string, status Status, detail string) {
		t.Helper()
		i := newTestInspector(t, server.Flags{Redis: pointTo("redis://:" + secret + "@" + address)}, nil)
		wantCheck(t, i.checkRedis(t.Context()), "redis", status, detail)
	}
	const next = password + "-of-tomorrow"
	change(">" + next)
	check(password, Warning, "deletes keys")
	check(next, Warning, "deletes keys")
	change("<" + password)
	check(password, Failure, "it refuses the password")
	check(next, Warning, "deletes keys")
}

// TestRotationPage checks that every row of docs/operations/rotation.md names a test, and that these tests exist.
func TestRotationPage(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations", "rotation.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "\n## ")
	names := map[string]bool{}
	for row := range strings.Lines(table) {
		found := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row, -1)
		if strings.HasPrefix(row, "| ") && !strings.HasPrefix(row, "| Secret |") && len(found) == 0 {
			t.Errorf("no test is named in %s", row)
		}
		for _, m := range found {
			names[m[1]] = true
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d tests are named", len(names))
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for name := range names {
			if bytes.Contains(source, []byte("\nfunc "+name+"(")) {
				delete(names, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range names {
		t.Errorf("there is no test %s", name)
	}
}
