package surface_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/db/dbtest"
)

// TestColludingApps checks that apps which announce large bodies and send almost nothing of them do not keep out the
// body of another app.
func TestColludingApps(t *testing.T) {
	for _, apps := range []int{4, 16} {
		t.Run(fmt.Sprint(apps), func(t *testing.T) {
			t.Parallel()
			var weighed atomic.Int64 // how often a large body reserved memory
			h := surfacetest.New(t, surfacetest.Options{Surface: surface.Options{OnLargeBodies: func(int64) { weighed.Add(1) }}}, func(*surfacetest.Fixture) []surface.Route {
				return []surface.Route{{Method: http.MethodPost, Pattern: "/large", Kind: surface.Tenant, LargeBody: true, Serve: func(w http.ResponseWriter, r *http.Request) error {
					body, err := surface.ReadBody(r)
					if err != nil {
						return err
					}
					return response.WriteJSON(w, http.StatusOK, len(body))
				}}}
			})
			h.CreateApp(t, "quiet", config)
			quiet := h.MintToken(t, "quiet", authz.TokenSpec{Subject: "ana"})
			var open int64
			for i := range apps {
				name := fmt.Sprintf("colluder-%d", i)
				h.CreateApp(t, name, config)
				token := h.MintToken(t, name, authz.TokenSpec{Subject: "eve"})
				for _, size := range []int{28 << 20, 28 << 20, 8 << 20} {
					sendPartialBody(t, h.URL, token, size)
					open++
				}
			}
			// Bodies beyond the quotas wait and reserve nothing.
			dbtest.WaitUntil(t, "the large bodies have room", func() bool { return weighed.Load() >= min(open, 12) })
			for range 3 {
				resp, answer := h.Do(t, http.MethodPost, "/large", quiet, strings.Repeat(" ", 1<<20))
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("a body of 1 MiB with %d apps with %d bodies under way: %d %s", apps, open, resp.StatusCode, answer)
				}
			}
		})
	}
}

// sendPartialBody sends a request with a Content-Length of size and the first 70 kB of its body.
func sendPartialBody(t *testing.T, url, token string, size int) {
	t.Helper()
	address := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /large HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", address, token, size, strings.Repeat(" ", 70_000))
	if err != nil {
		t.Fatal(err)
	}
}

// TestBodyRateOption checks that an app's large bodies, and those that are refused for their content, are read at no
// more than the configured rate.
func TestBodyRateOption(t *testing.T) {
	t.Parallel()
	const rate = 1 << 20
	h := surfacetest.New(t, surfacetest.Options{Surface: surface.Options{BodyRate: rate}}, func(*surfacetest.Fixture) []surface.Route {
		return []surface.Route{{Method: http.MethodPost, Pattern: "/large", Kind: surface.Tenant, LargeBody: true, Serve: func(w http.ResponseWriter, r *http.Request) error {
			_, err := surface.ReadBody(r)
			return err
		}}}
	})
	for _, c := range []struct {
		name, body string
		times      int
		status     int
	}{
		{"text", `"` + strings.Repeat("x", 1<<20-2) + `"`, 4, http.StatusOK}, // twice the burst
		{"refused", "[" + strings.Repeat("{},", 40_000) + "{}]", 12, http.StatusRequestEntityTooLarge},
	} {
		h.CreateApp(t, c.name, config)
		token := h.MintToken(t, c.name, authz.TokenSpec{Subject: "eve"})
		began := time.Now()
		for range c.times {
			if resp, answer := h.Do(t, http.MethodPost, "/large", token, c.body); resp.StatusCode != c.status {
				t.Errorf("%s: %d %s", c.name, resp.StatusCode, answer)
			}
		}
		if took := time.Since(began); took < 1500*time.Millisecond { // a lower bound: it does not depend on how fast the machine is
			t.Errorf("%s: %d bodies in %v", c.name, c.times, took)
		}
	}
}
