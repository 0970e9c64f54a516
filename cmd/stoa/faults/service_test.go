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

// postgres is a PostgreSQL server of a test's own, which may be stopped.
type postgres struct {
	t    testing.TB
	bin  string
	dir  string
	port int
	as   *syscall.Credential // it refuses to run as root
}

// newPostgres starts a server, which ends with the test.
func newPostgres(t testing.TB) *postgres {
	t.Helper()
	p := &postgres{t: t, bin: postgresBin(t), port: freePort(t)}
	p.dir = p.folder()
	p.run("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-D", p.data())
	p.start()
	t.Cleanup(func() { p.stop("immediate") })
	return p
}

// folder makes a folder that the server's user may enter.
func (p *postgres) folder() string {
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
		p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			p.t.Fatal(err)
		}
	}
	return dir
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *postgres) address() string { return net.JoinHostPort("127.0.0.1", itoa(p.port)) }

func (p *postgres) run(program string, args ...string) {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.bin, program), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// start returns when the server accepts connections.
func (p *postgres) start() {
	p.t.Helper()
	settings := fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=%s -c max_connections=200 -c fsync=off", p.port, p.dir)
	p.run("pg_ctl", "-w", "-t", "30", "-D", p.data(), "-l", filepath.Join(p.dir, "log"), "-o", settings, "start")
}

// stop ends the server: fast ends its sessions and shuts down, immediate crashes.
func (p *postgres) stop(mode string) {
	p.t.Helper()
	p.run("pg_ctl", "-w", "-D", p.data(), "-m", mode, "stop")
}

// signal sends a signal to every process of the server.
func (p *postgres) signal(s syscall.Signal) {
	p.t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
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

// create makes a database and returns its address.
func (p *postgres) create(name string) string {
	p.t.Helper()
	address := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", p.address())
	conn, err := pgx.Connect(p.t.Context(), address)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(p.t.Context(), "CREATE DATABASE "+name); err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", p.address(), name)
}

func postgresBin(t testing.TB) string {
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
	absent(t, "PostgreSQL's pg_ctl")
	return ""
}

// absent skips a test that lacks a program, or fails it where nothing may be left out.
func absent(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("STOA_TEST_REQUIRE") != "" {
		t.Fatalf("%s is not on this machine", what)
	}
	fmt.Fprintf(os.Stdout, "    %s: NOT TESTED: %s is not on this machine\n", t.Name(), what)
	t.SkipNow()
}

// through returns address with the host and port of p.
func through(address string, p *proxy) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	u.Host = p.addr
	return u.String()
}

func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// service is a program beside the test that can be ended and started again at the same place.
type service struct {
	t    testing.TB
	cmd  *exec.Cmd
	run  func() *exec.Cmd
	addr string
}

// newService starts what run returns, which listens at addr, and ends it with the test.
func newService(t testing.TB, addr string, run func() *exec.Cmd) *service {
	t.Helper()
	s := &service{t: t, run: run, addr: addr}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *service) start() {
	s.t.Helper()
	s.cmd = s.run()
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

func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// newRedis starts a Redis of the test's own.
func newRedis(t testing.TB) *service {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		absent(t, "redis-server")
	}
	port, dir := freePort(t), t.TempDir()
	return newService(t, net.JoinHostPort("127.0.0.1", itoa(port)), func() *exec.Cmd {
		return exec.Command(path, "--port", itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	})
}

// redisDo sends one command to a Redis.
func redisDo(t testing.TB, addr, command string) {
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

// newBalancer starts HAProxy before the processes at addrs and returns where it listens.
func newBalancer(t testing.TB, addrs ...string) string {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		absent(t, "haproxy (Debian package haproxy)")
	}
	addr := net.JoinHostPort("127.0.0.1", itoa(freePort(t)))
	text := `
defaults
  mode http
  timeout connect 2s
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
	newService(t, addr, func() *exec.Cmd { return exec.Command(path, "-db", "-f", file) })
	return "http://" + addr
}
