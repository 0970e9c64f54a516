package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

// TestCheckHost checks that CheckHost decides about a name as a connection would.
func TestCheckHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host, leads string
		private     bool
		refused     bool
	}{
		{"public.example", "192.88.99.1", false, true}, // 6to4 relay anycast is not a public address
		{"public.example", "93.184.215.14", false, false},
		{"inside.example", "10.0.0.7", false, true},
		{"inside.example", "10.0.0.7", true, false},
		{"metadata.example", "169.254.169.254", true, true},
		{"127.1", "", true, true},
	} {
		c := New(Options{PrivateNetwork: tt.private, Resolver: startNameServer(t, func(int64) netip.Addr {
			addr, _ := netip.ParseAddr(tt.leads)
			return addr
		})})
		err := c.CheckHost(t.Context(), tt.host)
		if refused := errors.As(err, new(*NotAllowedError)); refused != tt.refused || err != nil && !refused {
			t.Errorf("%s, which leads to %s, with private networks %v: %v", tt.host, tt.leads, tt.private, err)
		}
	}
}

// startNameServer starts a name server that answers every A query with the address that answer returns for the number
// of queries so far, and every other query with none. It returns a resolver that uses it.
func startNameServer(t *testing.T, answer func(n int64) netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	var queries atomic.Int64
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buildDNSReply(buf[:n], func() netip.Addr { return answer(queries.Add(1)) }), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// buildDNSReply returns the response to a query (RFC 1035, section 4) with one question.
func buildDNSReply(query []byte, address func() netip.Addr) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if binary.BigEndian.Uint16(query[end-4:]) != 1 {
		return out
	}
	out[7] = 1
	ip := address().As4()
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(out, ip[:]...)
}
