package faults_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func itoa(n int) string { return strconv.Itoa(n) }

// postgresServer is a PostgreSQL server of the test's own, which can be stopped.
type postgresServer struct {
	t          testing.TB
	bin        string
	dir        string
	port       int
	settings   string              // further arguments of the server
	credential *syscall.Credential // PostgreSQL refuses to run as root
}

// newPostgres starts a server, which ends with the test. settings are further arguments of it.
func newPostgres(t testing.TB, settings ...string) *postgresServer {
	t.Helper()
	p := &postgresServer{t: t, bin: findPostgresBin(t), port: freePort(t), settings: strings.Join(settings, " ")}
	p.dir = p.makeDir()
	p.runProgram("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-D", p.dataDir())
	p.startServer()
	t.Cleanup(func() { p.stopServer("immediate") })
	return p
}

// makeDir creates a folder that the server's user can access.
func (p *postgresServer) makeDir() string {
	dir, err := os.MkdirTemp("", "stoa-faults-pg.")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		other, err := user.Lookup("postgres")
		if err != nil {
			other, err = user.Lookup("nobody")
		}
		if err != nil {
			p.t.Fatal(err)
		}
		uid, _ := strconv.Atoi(other.Uid)
		gid, _ := strconv.Atoi(other.Gid)
		p.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			p.t.Fatal(err)
		}
	}
	return dir
}

func (p *postgresServer) dataDir() string { return filepath.Join(p.dir, "data") }

func (p *postgresServer) hostPort() string { return net.JoinHostPort("127.0.0.1", itoa(p.port)) }

func (p *postgresServer) runProgram(program string, args ...string) {
	p.t.Helper()
	if out, err := p.tryProgram(program, args...); err != nil {
		p.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// tryProgram runs one of PostgreSQL's programs as the server's user and returns what it wrote.
func (p *postgresServer) tryProgram(program string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(p.bin, program), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.credential}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// startServer starts the server and returns when it accepts connections.
func (p *postgresServer) startServer() {
	p.t.Helper()
	settings := fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=%s -c max_connections=200 -c fsync=off %s", p.port, p.dir, p.settings)
	if out, err := p.tryProgram("pg_ctl", "-w", "-t", "30", "-D", p.dataDir(), "-l", filepath.Join(p.dir, "log"), "-o", settings, "start"); err != nil {
		log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
		p.t.Fatalf("pg_ctl: %v\n%s\n%s", err, out, lastBytes(string(log), 2000))
	}
}

// stopServer stops the server: mode fast ends its sessions and shuts down, immediate crashes.
func (p *postgresServer) stopServer(mode string) {
	p.t.Helper()
	p.runProgram("pg_ctl", "-w", "-D", p.dataDir(), "-m", mode, "stop")
}

// signalProcesses sends a signal to every process of the server.
func (p *postgresServer) signalProcesses(s syscall.Signal) {
	p.t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dataDir(), "postmaster.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	children, err := os.ReadFile("/proc/" + first + "/task/" + first + "/children")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, text := range append([]string{first}, strings.Fields(string(children))...) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			p.t.Fatal(err)
		}
		_ = syscall.Kill(pid, s) // a session may have ended meanwhile
	}
}

// createDatabase creates a database and returns its URL.
func (p *postgresServer) createDatabase(name string) string {
	p.t.Helper()
	p.execSQL("postgres", "CREATE DATABASE "+name)
	return p.databaseURL("postgres", name)
}

// databaseURL returns the URL of a database for a login.
func (p *postgresServer) databaseURL(login, name string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", login, p.hostPort(), name)
}

// execSQL executes statements in a database as the superuser.
func (p *postgresServer) execSQL(name, statements string) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.databaseURL("postgres", name))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.PgConn().Exec(p.t.Context(), statements).ReadAll(); err != nil {
		p.t.Fatal(err)
	}
}

func findPostgresBin(t testing.TB) string {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(dirs)
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "pg_ctl")); err == nil {
			return dir
		}
	}
	skipMissing(t, "PostgreSQL's pg_ctl")
	return ""
}

// skipMissing skips a test that needs a missing program, or fails it if no test may be skipped.
func skipMissing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("STOA_TEST_REQUIRE") != "" {
		t.Fatalf("%s is not on this machine", what)
	}
	fmt.Fprintf(os.Stdout, "    %s: NOT TESTED: %s is not on this machine\n", t.Name(), what)
	t.SkipNow()
}

// viaProxy returns address with the host and port of p.
func viaProxy(address string, p *proxy) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	u.Host = p.addr
	return u.String()
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// externalService is a program that can be stopped and restarted at the same address.
type externalService struct {
	t          testing.TB
	cmd        *exec.Cmd
	newCommand func() *exec.Cmd
	addr       string
}

// startService starts the command of run, which listens at addr, and stops it with the test.
func startService(t testing.TB, addr string, run func() *exec.Cmd) *externalService {
	t.Helper()
	s := &externalService{t: t, newCommand: run, addr: addr}
	s.startProgram()
	t.Cleanup(s.killProgram)
	return s
}

func (s *externalService) startProgram() {
	s.t.Helper()
	s.cmd = s.newCommand()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 500 {
		if c, err := net.DialTimeout("tcp", s.addr, time.Second); err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatalf("%s does not listen at %s", s.cmd.Path, s.addr)
}

func (s *externalService) killProgram() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// startRedis starts a Redis of the test's own.
func startRedis(t testing.TB) *externalService {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		skipMissing(t, "redis-server")
	}
	port, dir := freePort(t), t.TempDir()
	return startService(t, net.JoinHostPort("127.0.0.1", itoa(port)), func() *exec.Cmd {
		return exec.Command(path, "--port", itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	})
}

// sendRedisCommand sends one command to a Redis.
func sendRedisCommand(t testing.TB, addr, command string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 64)
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(answer); err != nil || answer[0] != '+' {
		t.Fatalf("Redis answers %q to %s (%v)", answer[:n], command, err)
	}
}

// startBalancer starts HAProxy in front of the processes at addrs and returns its address.
func startBalancer(t testing.TB, addrs ...string) string {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		skipMissing(t, "haproxy (Debian package haproxy)")
	}
	addr := net.JoinHostPort("127.0.0.1", itoa(freePort(t)))
	text := `
defaults
  mode http
  timeout connect 2s
  timeout check 4s
  timeout client 60s
  timeout server 60s
  retries 3
  option redispatch
frontend door
  bind ` + addr + `
  default_backend stoa
backend stoa
  balance roundrobin
  option httpchk GET /ready
  http-check expect status 200
  default-server check inter 200ms fall 1 rise 1
`
	for i, a := range addrs {
		text += fmt.Sprintf("  server s%d %s\n", i, a)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startService(t, addr, func() *exec.Cmd { return exec.Command(path, "-db", "-f", file) })
	return "http://" + addr
}
