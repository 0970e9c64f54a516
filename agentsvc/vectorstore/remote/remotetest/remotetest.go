// Package remotetest helps to test the vector stores on other machines: an [Index] for servers in the test's own
// process and such servers ([StartQdrant] and others), programs of real servers ([StartServer]), and the suite of what all kinds do without a server that works
// ([RunConnectionSuite]).
package remotetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
)

// Key is the API key of [NewOptions]. No error may contain it.
const Key = "a-secret-key"

// NewOptions returns options for a store at address, "host:port", that allow private networks.
func NewOptions(t testing.TB, address string) remote.Options {
	return newOptions(t, address, egress.Options{PrivateNetwork: true})
}

// newOptions returns options for a store at address whose egress client is closed at the end of the test.
func newOptions(t testing.TB, address string, e egress.Options) remote.Options {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	port, portErr := strconv.Atoi(text)
	if err != nil || portErr != nil {
		t.Fatal(address, err, portErr)
	}
	client := egress.New(e)
	t.Cleanup(client.Close)
	return remote.Options{Host: host, Port: port, APIKey: Key, Egress: client}
}

// NewTLSOptions returns a certificate for a server on this machine, and options for a store there that trust it.
func NewTLSOptions(t testing.TB, address string) (tls.Certificate, remote.Options) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	o := newOptions(t, address, egress.Options{PrivateNetwork: true, TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}})
	o.EnableTLS = true
	return s.TLS.Certificates[0], o
}

// Listen returns a listener on a free port of this machine.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// RunConnectionSuite checks what a store does whose server may not be called or is down.
func RunConnectionSuite(t *testing.T, newStore func(o remote.Options) (vectorstore.Store, error)) {
	search := func(t *testing.T, o remote.Options) error {
		s, err := newStore(o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		_, err = s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: 1})
		for _, secret := range []string{Key, "127.0.0.1:"} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error contains %s: %v", secret, err)
			}
		}
		return err
	}
	t.Run("private address", func(t *testing.T) {
		l := Listen(t)
		defer func() { _ = l.Close() }()
		err := search(t, newOptions(t, l.Addr().String(), egress.Options{}))
		_, refused := errors.AsType[*egress.NotAllowedError](err)
		if _, rejected := errors.AsType[*vectorstore.RejectedError](err); !refused || !rejected {
			t.Errorf("a private address without the grant: %v", err)
		}
	})
	t.Run("down", func(t *testing.T) {
		l := Listen(t)
		_ = l.Close()
		if err := search(t, NewOptions(t, l.Addr().String())); !isUnavailable(err) {
			t.Errorf("a port at which nothing listens: %v", err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		l := Listen(t)
		defer func() { _ = l.Close() }()
		o := NewOptions(t, l.Addr().String())
		o.Timeout = 100 * time.Millisecond
		if err := search(t, o); !isUnavailable(err) || !strings.Contains(err.Error(), "in time") {
			t.Errorf("a server that accepts and does not answer: %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		l := Listen(t)
		defer func() { _ = l.Close() }()
		s, err := newStore(NewOptions(t, l.Addr().String()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := s.DeleteDocuments(ctx, "c", []string{"x"}); !errors.Is(err, context.DeadlineExceeded) || isUnavailable(err) {
			t.Errorf("a caller that no longer waits: %v", err)
		}
	})
}

func isUnavailable(err error) bool {
	_, ok := errors.AsType[*vectorstore.UnavailableError](err)
	return ok
}

// StartServer starts the program of a real server and returns its address when it listens. newArguments returns the
// program's arguments for a free port. The program ends with the test.
func StartServer(t *testing.T, program string, environment []string, newArguments func(port string) []string) string {
	t.Helper()
	l := Listen(t)
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, newArguments(port)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), environment...)
	cmd.WaitDelay = 10 * time.Second
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close()
			return address
		}
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", program, log)
		case <-deadline.C:
			t.Fatalf("%s does not listen on port %s", program, port)
		case <-poll.C:
		}
	}
}
