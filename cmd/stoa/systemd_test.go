package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stoa/cmd/stoa/stoatest"
)

// TestServiceManager starts servers with the socket of a service manager. A server says that it is ready when /health
// answers and not before, then that it stops; one that cannot start says nothing.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "notify") // t.TempDir can be longer than the 108 bytes of a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	for _, c := range []struct {
		name, socket string
		args         []string
		starts       bool
	}{
		{"file", filepath.Join(folder, "file"), nil, true},
		{"abstract", "@" + filepath.Join(folder, "abstract"), nil, true},
		{"wrong setting", filepath.Join(folder, "wrong"), []string{"--config", "none.yaml"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: c.socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			// The port must be known before the server prints it. Another process may take it until the server does: then
			// the server ends.
			port := freePort(t)
			p, err := stoatest.LaunchProcess("stoa", t.TempDir(), []string{"NOTIFY_SOCKET=" + c.socket},
				append([]string{"serve", "--host", "127.0.0.1", "--grpc-port", "0", "--port", strconv.Itoa(port)}, c.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.SignalAndWait(syscall.SIGKILL) })
			if !c.starts {
				<-p.Ended()
				if got := receive(manager, 10*time.Millisecond); got != "" {
					t.Errorf("a server that does not start sends %q", got)
				}
				return
			}
			if got := receive(manager, time.Minute); got != "READY=1" {
				t.Fatalf("the server sends %q, want READY=1:\n%s", got, p.Output())
			}
			// Once: a later attempt would hide that it came too early.
			resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/health")
			if err != nil {
				t.Fatalf("it is ready and does not answer: %v", err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("it is ready and answers %s", resp.Status)
			}
			if err := p.SignalAndWait(syscall.SIGTERM); err != nil {
				t.Errorf("it ends with %v:\n%s", err, p.Output())
			}
			if got := receive(manager, time.Minute); got != "STOPPING=1" {
				t.Errorf("the server sends %q before it ends, want STOPPING=1", got)
			}
		})
	}
}

// TestServiceManagerGone checks that a server serves although its service manager cannot be reached, and warns.
func TestServiceManagerGone(t *testing.T) {
	t.Parallel()
	p, err := stoatest.LaunchProcess("stoa", t.TempDir(), []string{"NOTIFY_SOCKET=/none"}, "serve", "--host", "127.0.0.1", "--port", "0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.SignalAndWait(syscall.SIGKILL) })
	if err := p.AwaitServing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.SignalAndWait(syscall.SIGTERM); err != nil || !strings.Contains(p.Output(), "NOTIFY_SOCKET") {
		t.Errorf("it ends with %v and writes no warning:\n%s", err, p.Output())
	}
}

// receive returns the next message on a socket, "" if there is none within limit.
func receive(manager *net.UnixConn, limit time.Duration) string {
	_ = manager.SetReadDeadline(time.Now().Add(limit))
	message := make([]byte, 4096)
	n, err := manager.Read(message)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err.Error()
	}
	return string(message[:n])
}

// freePort returns a TCP port of this machine that nothing listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
