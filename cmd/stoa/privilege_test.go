package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/cmd/stoa/server"
	"stoa/cmd/stoa/stoatest"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// leastPrivilege are the logins of an installation as stoa migrate roles creates them.
type leastPrivilege struct{ owner, login, backup string }

// newLeastPrivilege returns logins with names of this test.
func newLeastPrivilege() leastPrivilege {
	suffix := strings.ReplaceAll(agentsvc.NewID(), "-", "")[:12]
	return leastPrivilege{"Owner of " + suffix, "login_" + suffix, "backup_" + suffix}
}

// createEmptyDatabase returns a function that gives the URL of a new empty database for one of the logins.
func (p leastPrivilege) createEmptyDatabase(t *testing.T) func(login string) string {
	t.Helper()
	admin := dbtest.NewEmptyPostgresURL(t)
	roles := migrations.Roles{Owner: p.owner, Login: p.login, Backup: p.backup}
	statements, err := roles.SQL()
	if err != nil {
		t.Fatal(err)
	}
	// Twice, because the SQL can be repeated.
	dbtest.ExecSQL(t, admin, statements)
	dbtest.ExecSQL(t, admin, statements)
	return func(login string) string {
		u, err := url.Parse(admin)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(login)
		return u.String()
	}
}

// migrateAsOwner brings the schema up to date as the owner, as stoa migrate up does.
func migrateAsOwner(t *testing.T, login, owner string) {
	t.Helper()
	d, err := db.Open(t.Context(), login, db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := server.MigrateSchema(t.Context(), d, owner); err != nil {
		t.Fatal(err)
	}
}

// openWithoutMigration opens a server that never changes the schema.
func openWithoutMigration(t *testing.T, database string) (*server.Server, error) {
	t.Helper()
	port, host, no := 0, "127.0.0.1", true
	return openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host, NoMigrate: &no}, newTestLog(t), exampleConfig)
}

// runTool runs a program and returns its output.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = stoatest.Environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestLeastPrivilege serves with a login that owns nothing: it starts on a schema that is up to date and not on another,
// and shows its version. A dump by the login for backups, restored by the owner, serves the same tasks.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	logins := newLeastPrivilege()
	at := logins.createEmptyDatabase(t)
	if _, err := prepareServer(t, at(logins.login), newTestLog(t), exampleConfig); err == nil || !strings.Contains(err.Error(), "stoa migrate up, or --migrate-database") {
		t.Errorf("a login that may not migrate gets %v", err)
	}
	if _, err := openWithoutMigration(t, at(logins.login)); err == nil || !strings.Contains(err.Error(), "the schema is at 0 of") || !strings.Contains(err.Error(), "run stoa migrate up") {
		t.Errorf("without a schema --no-migrate gets %v", err)
	}
	migrateAsOwner(t, at(logins.login), at(logins.owner))
	if out := runTool(t, "stoa", "migrate", "status", "--database", at(logins.login)); !strings.Contains(out, "up to date") {
		t.Errorf("stoa migrate status shows %s", out)
	}
	if _, err := openWithoutMigration(t, at(logins.backup)); err == nil || !strings.Contains(err.Error(), "may not act under the roles stoa_tenant and stoa_platform") {
		t.Errorf("a login without the roles gets %v", err)
	}
	// The login alone reads nothing: it has to act under one of the roles, as the server does for each transaction.
	dbtest.ExecSQL(t, at(logins.login), "SET ROLE stoa_platform; SELECT count(*) FROM task")
	if out, err := exec.CommandContext(t.Context(), "psql", "--dbname", at(logins.login), "--command", "SELECT count(*) FROM task").CombinedOutput(); err == nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("without SET ROLE the login that serves reads %s", out)
	}
	dump, task, token := filepath.Join(t.TempDir(), "stoa.dump"), "", ""
	for _, open := range []func() (*server.Server, error){
		func() (*server.Server, error) {
			return prepareServer(t, at(logins.login), newTestLog(t), exampleConfig)
		},
		func() (*server.Server, error) { return openWithoutMigration(t, at(logins.login)) },
	} {
		t.Run("serves", func(t *testing.T) {
			h, err := open()
			if err != nil {
				t.Fatal(err)
			}
			ts := startTestServer(t, h)
			if token == "" {
				ts.createApp(t, "acme", fmt.Sprintf(slowApp, "acme"))
				token = ts.createToken(t, "acme", "ana", nil)
			}
			var got taskAnswer
			ts.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hi")))
			task = got.Result.TaskID
		})
	}
	runTool(t, "pg_dump", "--format=custom", "--file", dump, "--dbname", at(logins.backup))

	restored := logins.createEmptyDatabase(t)
	runTool(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname", restored(logins.owner), dump)
	h, err := openWithoutMigration(t, restored(logins.login))
	if err != nil {
		t.Fatal(err)
	}
	ts := startTestServer(t, h)
	ts.requireStatus(t, http.StatusOK, nil, "GET", "/v1/agents/assistant/tasks/"+task, token, nil)
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hi")))
}
