package faults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// composeService is the part of a service of deploy/compose/compose.yaml that decides how its program is started.
type composeService struct {
	Image, Restart string
	Command        []string
	Environment    map[string]string
	Secrets        []string
	DependsOn      yaml.Node `yaml:"depends_on"` // a list, or a mapping with conditions
}

// composeMachine stands for the machine on which the services of compose.yaml run: their programs are started with the
// commands, variables and secrets of the file, without containers.
type composeMachine struct {
	*testing.T
	services map[string]composeService
	dir      string // has secrets, as deploy/compose has
	pg       *postgresServer
	replaced *strings.Replacer // what a container sees, by what there is here
	port     int               // of stoa-1
	server   *externalService
}

// newComposeMachine creates the secrets with secrets.sh and starts PostgreSQL as its image does, and Redis.
func newComposeMachine(t *testing.T) *composeMachine {
	m := &composeMachine{T: t, dir: t.TempDir(), port: freePort(t)}
	var file struct {
		Services map[string]composeService
	}
	text, err := os.ReadFile("../../../deploy/compose/compose.yaml")
	m.check(err)
	m.check(yaml.Unmarshal(text, &file))
	m.services = file.Services
	script, err := os.ReadFile("../../../deploy/compose/secrets.sh")
	m.check(err)
	m.check(os.WriteFile(filepath.Join(m.dir, "secrets.sh"), script, 0o700))
	m.requireCommand(exec.CommandContext(t.Context(), filepath.Join(m.dir, "secrets.sh")))

	m.pg = &postgresServer{t: t, bin: findPostgresBin(t), port: freePort(t)}
	m.pg.dir = m.pg.makeDir()
	environment := m.services["postgres"].Environment
	if environment["POSTGRES_PASSWORD_FILE"] != "/run/secrets/postgres" || environment["POSTGRES_USER"] != "" {
		t.Fatalf("the environment of PostgreSQL is %v", environment)
	}
	password := filepath.Join(m.pg.dir, "password")
	content, err := os.ReadFile(filepath.Join(m.dir, "secrets/postgres"))
	m.check(err)
	m.check(os.WriteFile(password, content, 0o644)) //nolint:gosec // PostgreSQL runs as another user
	m.pg.runProgram("initdb", append(strings.Fields(environment["POSTGRES_INITDB_ARGS"]), "--username=postgres", "--pwfile="+password, "--no-sync", "-D", m.pg.dataDir())...)
	m.pg.startServer()
	t.Cleanup(func() { m.pg.stopServer("immediate") })
	m.runPostgres("createdb", "--username", "postgres", environment["POSTGRES_DB"])

	redis := startRedis(t)
	config, err := filepath.Abs("../../../deploy/compose/stoa.yaml")
	m.check(err)
	m.replaced = strings.NewReplacer("/run/secrets", filepath.Join(m.dir, "secrets"), "postgres:5432", m.pg.hostPort(), "redis:6379", redis.addr,
		"/etc/stoa/stoa.yaml", config, "${STOA_HOSTNAME:-localhost}", "localhost", "${STOA_ROLE:-all}", "all", "${OTEL_EXPORTER_OTLP_ENDPOINT:-}", "", ":9090", "127.0.0.1:0")
	entries, err := os.ReadDir(filepath.Join(m.dir, "secrets"))
	m.check(err)
	for _, entry := range entries {
		path := filepath.Join(m.dir, "secrets", entry.Name())
		content, err := os.ReadFile(path)
		m.check(err)
		m.check(os.WriteFile(path, []byte(m.replaced.Replace(string(content))), 0o600))
	}
	return m
}

func (m *composeMachine) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// newCommand returns the program of a service, or another command in its container. Of the test's own environment it has
// nothing.
func (m *composeMachine) newCommand(service string, args ...string) *exec.Cmd {
	m.Helper()
	s, ok := m.services[service]
	if !ok || !strings.HasPrefix(s.Image, "stoa:") {
		m.Fatalf("compose.yaml has no service %s of Stoa", service)
	}
	if len(args) == 0 {
		args = s.Command
	}
	cmd := exec.CommandContext(m.Context(), plainBuild.programPath(m.T))
	for _, arg := range args {
		m.requireSecret(service, arg)
		cmd.Args = append(cmd.Args, m.replaced.Replace(arg))
	}
	cmd.Dir = m.dir
	cmd.Env = []string{"HOME=" + m.dir, "TMPDIR=" + os.TempDir(), "STOA_HOST=127.0.0.1", "STOA_PORT=" + itoa(m.port), "STOA_GRPC_PORT=0"}
	for name, value := range s.Environment {
		m.requireSecret(service, value)
		cmd.Env = append(cmd.Env, name+"="+m.replaced.Replace(value))
	}
	return cmd
}

// requireSecret requires that a service has the secret whose file text names.
func (m *composeMachine) requireSecret(service, text string) {
	m.Helper()
	if name, ok := strings.CutPrefix(text, "/run/secrets/"); ok && !slices.Contains(m.services[service].Secrets, name) {
		m.Fatalf("%s reads the secret %s, which compose.yaml does not give it", service, name)
	}
}

func (m *composeMachine) requireCommand(cmd *exec.Cmd) string {
	m.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// runPostgres runs a program in PostgreSQL's container, where it reaches the server by its socket.
func (m *composeMachine) runPostgres(program string, args ...string) string {
	m.Helper()
	out, err := m.pg.tryProgram(program, append([]string{"--host", m.pg.dir, "--port", itoa(m.pg.port)}, args...)...)
	if err != nil {
		m.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return out
}

// startServices does what docker compose up does: the services that end, in the order of their conditions, then stoa-1.
func (m *composeMachine) startServices() {
	m.Helper()
	ended := map[string]bool{}
	var run func(name string)
	run = func(name string) {
		var conditions map[string]struct{ Condition string }
		dependsOn := m.services[name].DependsOn
		m.check(dependsOn.Decode(&conditions))
		for other, c := range conditions {
			if c.Condition == "service_completed_successfully" && !ended[other] {
				run(other)
				m.requireCommand(m.newCommand(other))
				ended[other] = true
			}
		}
	}
	run("stoa-1")
	if len(ended) == 0 {
		m.Fatal("stoa-1 waits for no service that ends")
	}
	m.server = startService(m, net.JoinHostPort("127.0.0.1", itoa(m.port)), func() *exec.Cmd {
		cmd := m.newCommand("stoa-1")
		cmd.Stderr = os.Stderr
		return cmd
	})
}

// stopServer ends stoa-1.
func (m *composeMachine) stopServer() {
	m.Helper()
	m.check(m.server.cmd.Process.Signal(syscall.SIGTERM))
	_ = m.server.cmd.Wait()
}

// requireHealthy requires that stoa doctor, in the container of stoa-1, finds the checks of the database without fault.
func (m *composeMachine) requireHealthy() {
	m.Helper()
	cmd := m.newCommand("stoa-1", "doctor", "--config", "/etc/stoa/stoa.yaml", "--json")
	out, err := cmd.Output()
	var report struct {
		Checks []struct{ Name, Status, Detail string }
		Status string
	}
	if jsonErr := json.Unmarshal(out, &report); err != nil || jsonErr != nil || report.Status == "fail" {
		m.Fatalf("stoa doctor: %v %v\n%s", err, jsonErr, out)
	}
	want := map[string]string{"login": "ok", "migration_login": "skip", "row_security": "ok", "migrations": "ok", "master_key": "ok", "redis": "ok", "environment": "ok"}
	for _, c := range report.Checks {
		if status, ok := want[c.Name]; ok && c.Status != status {
			m.Errorf("the check %s is %s (%s), want %s", c.Name, c.Status, c.Detail, status)
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		m.Errorf("stoa doctor has no checks %v", want)
	}
}

// fakeDocker stands for the program docker: %[1]s runs a program of PostgreSQL in its container, %[2]s the program of stoa-1.
const fakeDocker = `#!/bin/sh
case "$*" in
"compose exec --no-TTY postgres "*) shift 4; export program=$1; shift; exec %[1]s "$@" ;;
"compose run --rm --no-TTY --no-deps stoa-1 "*) shift 6; exec %[2]s "$@" ;;
esac
echo "unknown: $*" >&2
exit 1
`

// runBackup runs backup.sh: while PostgreSQL's programs fail and with a dump that is cut off, which leaves and records nothing,
// and then to the file that the page restores.
func (m *composeMachine) runBackup() {
	m.Helper()
	script, err := os.ReadFile("../../../deploy/compose/backup.sh")
	m.check(err)
	m.check(os.WriteFile(filepath.Join(m.dir, "backup.sh"), script, 0o700))
	stoa := m.newCommand("stoa-1", "version")
	var quoted []string
	for _, arg := range append(append([]string{"env", "-i"}, stoa.Env...), stoa.Path) {
		quoted = append(quoted, "'"+strings.ReplaceAll(arg, "'", `'\''`)+"'")
	}
	run := func(postgres string) error {
		m.check(os.WriteFile(filepath.Join(m.dir, "docker"), fmt.Appendf(nil, fakeDocker, postgres, strings.Join(quoted, " ")), 0o700))
		cmd := exec.CommandContext(m.Context(), filepath.Join(m.dir, "backup.sh"))
		cmd.Env = append(os.Environ(), "PATH="+m.dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		m.Logf("backup.sh: %v\n%s", err, out)
		return err
	}
	list := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(m.dir, "backups", pattern))
		m.check(err)
		return found
	}
	programs := fmt.Sprintf("%s/$program --host %s --port %d", m.pg.bin, m.pg.dir, m.pg.port)
	for _, broken := range []string{
		"sh -c 'echo half a dump; exit 1'",
		`sh -c 'case $program in pg_dump) ` + programs + ` "$@" | head -c 100000 ;; *) exec ` + programs + ` "$@" ;; esac' sh`,
	} {
		if err := run(broken); err == nil || len(list("*")) > 0 {
			m.Errorf("with %s: %v, and there is %v", broken, err, list("*"))
		}
	}
	m.requireCheck("last_backup", "warn")
	old := filepath.Join(m.dir, "backups", "stoa-20200101T000000Z.dump")
	m.check(os.WriteFile(old, nil, 0o600))
	m.check(os.Chtimes(old, time.Now(), time.Now().AddDate(0, 0, -16)))
	if err := run(programs); err != nil {
		m.Fatal(err)
	}
	written := list("*")
	if len(written) != 1 || written[0] == old {
		m.Fatalf("backup.sh leaves %v", written)
	}
	m.requireCheck("last_backup", "ok")
	dump, err := os.ReadFile(written[0])
	m.check(err)
	m.check(os.WriteFile(filepath.Join(m.pg.dir, "stoa.dump"), dump, 0o644)) //nolint:gosec // pg_restore runs as another user
}

// requireCheck requires the status of one check of stoa doctor.
func (m *composeMachine) requireCheck(name, want string) {
	m.Helper()
	out, err := m.newCommand("stoa-1", "doctor", "--config", "/etc/stoa/stoa.yaml", "--json").Output()
	m.check(err)
	var report struct {
		Checks []struct{ Name, Status, Detail string }
	}
	m.check(json.Unmarshal(out, &report))
	for _, c := range report.Checks {
		if c.Name == name && c.Status == want {
			return
		}
	}
	m.Errorf("the check %s is not %s:\n%s", name, want, out)
}

// countApps returns how many apps stoa app list shows.
func (m *composeMachine) countApps() int {
	m.Helper()
	list := m.newCommand("stoa-1", "app", "list")
	list.Env = append(list.Env, "STOA_SERVER=http://127.0.0.1:"+itoa(m.port))
	return strings.Count(m.requireCommand(list), "\n") - 1
}

// composeLine matches a line of docs/operations/compose.md and what it redirects.
var composeLine = regexp.MustCompile(`^docker compose (?:exec --no-TTY postgres (\S+) ([^<>]*?)(?: ?(<)(\S+))?|(run --rm|stop|up --detach) ?(.*))$`)

// runPage runs the lines of the block of docs/operations/compose.md that begins with a text.
func (m *composeMachine) runPage(begin string) {
	m.Helper()
	page, err := os.ReadFile("../../../docs/operations/compose.md")
	m.check(err)
	_, block, ok := strings.Cut(string(page), "```sh\n"+begin)
	block, _, closed := strings.Cut(begin+block, "```")
	if !ok || !closed {
		m.Fatalf("compose.md has no block that begins with %q", begin)
	}
	for line := range strings.Lines(block) {
		match := composeLine.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			m.Fatalf("compose.md has the line %q, which this test does not know", line)
		}
		switch {
		case match[3] == "<":
			m.runPostgres(match[1], append(strings.Fields(match[2]), filepath.Join(m.pg.dir, match[4]))...)
		case match[1] != "":
			m.runPostgres(match[1], strings.Fields(match[2])...)
		case match[5] == "run --rm":
			m.requireCommand(m.newCommand(match[6]))
		case match[5] == "stop":
			m.stopServer()
		default:
			m.startServices()
		}
	}
}

// TestCompose starts the programs of deploy/compose/compose.yaml with its commands and secrets, in its order: they serve as
// a login without power, stoa doctor finds no fault, and the backup of the page is restored by the page's commands.
func TestCompose(t *testing.T) {
	t.Parallel()
	m := newComposeMachine(t)
	m.startServices()
	m.requireHealthy()
	config := filepath.Join(m.dir, "acme.yaml")
	m.check(os.WriteFile(config, []byte("llms: {default: {provider: scripted}}\nagents: {a: {}}\n"), 0o600))
	create := m.newCommand("stoa-1", "app", "create", "acme", "--config", config)
	create.Env = append(create.Env, "STOA_SERVER=http://127.0.0.1:"+itoa(m.port))
	m.requireCommand(create)

	m.runBackup()
	m.requireCommand(func() *exec.Cmd {
		cmd := m.newCommand("stoa-1", "app", "delete", "acme", "--yes")
		cmd.Env = append(cmd.Env, "STOA_SERVER=http://127.0.0.1:"+itoa(m.port))
		return cmd
	}())
	m.runPage("docker compose stop")
	if n := m.countApps(); n != 2 {
		t.Errorf("the restored database has %d apps, want 2", n)
	}
	m.requireHealthy()

	m.stopServer()
	m.requirePasswords()
	m.startServices()
	m.requireHealthy()
}

// requirePasswords requires that the logins without a password are refused over the network, that no password is in the
// catalogue, and that another one in the file replaces the former.
func (m *composeMachine) requirePasswords() {
	m.Helper()
	if out, err := m.pg.tryProgram("psql", m.pg.databaseURL("stoa_backup", "stoa"), "-w", "-c", "SELECT 1"); err == nil || !strings.Contains(out, "password") {
		m.Errorf("stoa_backup without a password: %v\n%s", err, out)
	}
	stored := m.runPostgres("psql", "--username", "postgres", "--tuples-only", "--no-align", "--command", "SELECT rolname, rolpassword FROM pg_authid WHERE rolname LIKE 'stoa_%'", "stoa")
	if n := strings.Count(stored, "|SCRAM-SHA-256$"); n != 2 {
		m.Errorf("%d passwords are stored as verifiers, want 2:\n%s", n, stored)
	}
	path := func(name string) string { return filepath.Join(m.dir, "secrets", name) }
	logins, err := os.ReadFile(path("logins"))
	m.check(err)
	database, err := os.ReadFile(path("database"))
	m.check(err)
	_, old, _ := strings.Cut(strings.TrimSpace(string(logins)), "stoa_login=")
	if strings.Contains(stored, old) || !bytes.Contains(database, []byte(old)) {
		m.Errorf("the password of stoa_login is not that of the address, or stored as it is")
	}
	changed := fmt.Sprintf("n%d", time.Now().UnixNano())
	m.check(os.WriteFile(path("logins"), bytes.ReplaceAll(logins, []byte(old), []byte(changed)), 0o600))
	m.check(os.WriteFile(path("database"), bytes.ReplaceAll(database, []byte(old), []byte(changed)), 0o600))
}
