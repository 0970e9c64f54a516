package surface_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLongAnswer checks that a response of several segments, and those after it on the connection, arrive in as few
// segments as the network allows.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	for _, secure := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(nil)
		srv.Config = h.Server.NewHTTPServer()
		t.Cleanup(srv.Close)
		addr := srv.Listener.Addr().String()
		if secure {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		above := conn
		if secure {
			roots := x509.NewCertPool()
			roots.AddCert(srv.Certificate())
			above = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "example.com"})
		}
		in := bufio.NewReader(above)
		for i := range 5 {
			before := tcpInfo(t, conn)
			fmt.Fprint(above, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || len(body) != 30_003 {
				t.Fatalf("%d bytes and %v, want 30,003", len(body), err)
			}
			after := tcpInfo(t, conn)
			segments, bytes := after.Data_segs_in-before.Data_segs_in, after.Bytes_received-before.Bytes_received
			if maximum := uint32(bytes)/after.Advmss + 1; segments > maximum && (i > 0 || !secure) { // the first one includes the TLS handshake
				t.Errorf("TLS %t: %d bytes came in %d segments of %d, want %d", secure, bytes, segments, after.Advmss, maximum)
			}
		}
	}
}

// tcpInfo returns the kernel's counters of a connection.
func tcpInfo(t *testing.T, conn net.Conn) (info *unix.TCPInfo) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	var failed error
	if err == nil {
		err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	}
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return info
}
