package doctor

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"stoa/cmd/stoa/server"
)

// TestListeners checks addresses that are free, served by Stoa, taken by another program, and forbidden.
func TestListeners(t *testing.T) {
	t.Parallel()
	start := func(secure bool, body string) (port int) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				_, _ = io.WriteString(w, body)
			}
		})
		s := httptest.NewUnstartedServer(handler)
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // requests without TLS
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s.Listener.Addr().(*net.TCPAddr).Port
	}
	const health = `{"status": "ok", "version": "v1", "database": "connected"}`
	stoa, secure, other := start(false, health), start(true, health), start(false, `{"status": "ok"}`)
	bind := func(code syscall.Errno) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", code)}
	}
	tests := []struct {
		name   string
		port   int
		errs   map[string]error // by port; any other is free
		host   string
		status Status
		detail string
		action string
	}{
		{"free", 8080, nil, "127.0.0.1", OK, "free: HTTP at 127.0.0.1:8080, gRPC at 127.0.0.1:50051, metrics at 127.0.0.1:9090", ""},
		{"Stoa", stoa, map[string]error{"": bind(syscall.EADDRINUSE), "50051": bind(syscall.EADDRINUSE)}, "127.0.0.1", OK, "free: metrics at 127.0.0.1:9090; a server of Stoa has HTTP at ", ""},
		{"Stoa at every address", stoa, map[string]error{"": bind(syscall.EADDRINUSE)}, "0.0.0.0", OK, "a server of Stoa has HTTP at 0.0.0.0:", ""},
		{"Stoa with a certificate", secure, map[string]error{"": bind(syscall.EADDRINUSE)}, "127.0.0.1", OK, "a server of Stoa has HTTP at ", ""},
		{"Stoa at a port below 1024", stoa, map[string]error{"": bind(syscall.EACCES)}, "127.0.0.1", OK, "a server of Stoa has HTTP at ", ""},
		{"another program", other, map[string]error{"": bind(syscall.EADDRINUSE)}, "127.0.0.1", Failure, "address already in use", "--port (STOA_PORT)"},
		{"another program for gRPC", 8080, map[string]error{"50051": bind(syscall.EADDRINUSE)}, "127.0.0.1", Failure, "gRPC at 127.0.0.1:50051: listen tcp: bind: address already in use", "--grpc-port (STOA_GRPC_PORT)"},
		{"another program for metrics", 8080, map[string]error{"9090": bind(syscall.EADDRINUSE)}, "127.0.0.1", Failure, "metrics at 127.0.0.1:9090", "--metrics-addr (STOA_METRICS_ADDR)"},
		{"a port below 1024", 8080, map[string]error{"50051": bind(syscall.EACCES)}, "127.0.0.1", Warning, "permission denied", "CAP_NET_BIND_SERVICE"},
		{"another machine's address", 8080, map[string]error{"50051": bind(syscall.EADDRNOTAVAIL)}, "192.0.2.1", Failure, "cannot assign requested address", "--host (STOA_HOST)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			i := newTestInspector(t, server.Flags{Host: &tt.host, Port: &tt.port, MetricsAddr: pointTo("127.0.0.1:9090")}, nil)
			i.listen = func(_ context.Context, address string) error {
				_, port, err := net.SplitHostPort(address)
				if err != nil {
					return err
				}
				if port == strconv.Itoa(tt.port) {
					port = ""
				}
				return tt.errs[port]
			}
			checks := i.checkListeners(t.Context())
			wantCheck(t, checks, "listeners", tt.status, tt.detail)
			if !strings.Contains(checks[0].Action, tt.action) {
				t.Errorf("the action is %q, want %q", checks[0].Action, tt.action)
			}
		})
	}
	// The real listener: at any free port, and at one that is taken.
	i := newTestInspector(t, server.Flags{Host: pointTo("127.0.0.1"), Port: pointTo(0)}, nil)
	wantCheck(t, i.checkListeners(t.Context()), "listeners", OK, "free: HTTP at 127.0.0.1:0")
	i = newTestInspector(t, server.Flags{Host: pointTo("127.0.0.1"), Port: &other, GRPCPort: pointTo(0)}, nil)
	wantCheck(t, i.checkListeners(t.Context()), "listeners", Failure, "bind: address already in use")
}
