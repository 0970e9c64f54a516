package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"stoa/cmd/stoa/stoatest"
)

// TestConnections counts connections by their address: one address leaves room for others, trusted proxies and this machine may
// have all there are, and who leaves makes room.
func TestConnections(t *testing.T) {
	t.Parallel()
	c := newConnectionLimiter(10, 3, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	at := func(addr string) netip.Prefix {
		a := netip.MustParseAddr(addr)
		return netip.PrefixFrom(a, a.BitLen())
	}
	for i, want := range []bool{true, true, true, false, false} {
		if got := c.acquire(at("192.0.2.1")); got != want {
			t.Errorf("connection %d of an address: %v", i, got)
		}
	}
	for _, addr := range []string{"192.0.2.2", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "10.1.2.3", "10.1.2.3"} {
		if !c.acquire(at(addr)) {
			t.Errorf("%s is refused", addr)
		}
	}
	c.release(at("192.0.2.1"))
	if !c.acquire(at("192.0.2.1")) || c.acquire(at("192.0.2.1")) { // by now that is all there may be
		t.Error("who left made room for none, or for two")
	}
	if c.acquire(at("10.1.2.3")) {
		t.Error("a trusted proxy is let in beyond all that there may be")
	}
	open, refused := c.readCounts()
	if open != 10 || refused[boundAddress] != 2 || refused[boundTotal] != 2 {
		t.Errorf("%d are open, refused %v", open, refused)
	}
}

// TestDefaultConnections leaves descriptors to spare, whatever the process may have.
func TestDefaultConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		descriptors uint64
		want        int
	}{{0, maxDefaultConnections}, {1 << 20, maxDefaultConnections}, {20_000, 15_000}, {1024, 768}, {512, 256}, {256, 64}, {2, 1}} {
		if got := defaultMaxConnections(c.descriptors); got != c.want {
			t.Errorf("of %d descriptors %d are for connections, want %d", c.descriptors, got, c.want)
		}
	}
}

// TestFlood has a client open more connections than there may be, and say nothing: those beyond the bound are
// closed and counted, the process goes on to reach its database, and with the flood's end others get in.
func TestFlood(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		p := startProcess(t, dir, "--database", database, "--max-connections", "20")
		first := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 20 * time.Second}
		defer first.CloseIdleConnections()
		healthy := func(client *http.Client) error {
			resp, err := client.Get(p.url + "/health")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil { // so that the connection is used again
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}
		if err := healthy(first); err != nil {
			t.Fatal(err)
		}
		var flood []net.Conn
		closed := 0
		for range 60 {
			conn, err := net.Dial("tcp", p.url[len("http://"):])
			if err != nil {
				closed++
				continue
			}
			defer conn.Close()
			flood = append(flood, conn)
		}
		for _, conn := range flood[len(flood)-20:] { // the last are beyond the bound
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
				closed++
			}
		}
		if closed < 20 {
			t.Errorf("%d of the last 20 connections were closed", closed)
		}
		if err := healthy(first); err != nil {
			t.Errorf("who was there before the flood: %v", err)
		}
		req, err := http.NewRequest(http.MethodGet, p.url+"/admin/apps", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+stoatest.AdminSecret)
		resp, err := first.Do(req)
		if err != nil {
			t.Fatalf("a request that reads the database: %v", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("a request that reads the database: %s", resp.Status)
		}
		for _, conn := range flood {
			_ = conn.Close()
		}
		waitWithin(t, 20*time.Second, "another client gets in when the flood is over", func() bool {
			return healthy(&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}) == nil
		})
	})
}
