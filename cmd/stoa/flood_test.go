package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// TestFlood opens more connections than allowed and sends nothing: those beyond the bound are closed and counted, the
// process still reaches its database, and after the flood other clients are accepted.
func TestFlood(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		p := startProcess(t, dir, "--database", database, "--max-connections", "20")
		first := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: time.Minute}
		defer first.CloseIdleConnections()
		healthy := func(client *http.Client) error {
			resp, err := client.Get(p.url + "/health")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil { // so that the connection is reused
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
		for _, conn := range flood[len(flood)-20:] { // the last ones are beyond the bound
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
		dbtest.WaitUntil(t, "another client gets in when the flood is over", func() bool {
			return healthy(&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}) == nil
		})
	})
}
