package notify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// to returns a receiver at an address.
func to(t *testing.T, d *notify.Desk, form, url string) store.Receiver {
	t.Helper()
	r, err := d.Receiver(ana, "r", form, notify.Address{URL: url, Token: "token", Scheme: "Bearer", Credentials: "credentials"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTold: a receiver that fails at first hears everything, in order, once it answers; what is sent again has the same id; and
// it can tell who sends.
func TestTold(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		secret := []byte(strings.Repeat("s", 32))
		outcomes := make(chan string, 100)
		acme := desk(t, "acme", notify.Options{Callers: near, Secret: secret, Tried: func(outcome string) { outcomes <- outcome }})
		url, all := receiver(t, func(n int) int {
			if n <= 3 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		task := open(t, d, "acme", to(t, acme, "each", url))
		run(t, d, map[db.ID]*notify.Desk{"acme": acme}, notify.CourierOptions{First: time.Millisecond})
		first := next(t, all)
		for range 3 {
			again := next(t, all)
			diff(t, []string{first.body, first.header.Get("Webhook-Id")}, []string{again.body, again.header.Get("Webhook-Id")})
		}
		working := next(t, all)
		end(t, d, &task)
		completed := next(t, all)
		diff(t, []string{`"submitted"`, `"working"`, `"completed"`}, []string{first.body, working.body, completed.body})
		ids := map[string]bool{}
		for _, h := range []heard{first, working, completed} {
			id, at := h.header.Get("Webhook-Id"), h.header.Get("Webhook-Timestamp")
			ids[id] = true
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(id + "." + at + "." + h.body))
			diff(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), h.header.Get("Webhook-Signature"))
			diff(t, []string{"Bearer credentials", "token", "token", "application/json"}, []string{
				h.header.Get("Authorization"), h.header.Get("X-A2A-Notification-Token"), h.header.Get("A2A-Notification-Token"), h.header.Get("Content-Type"),
			})
		}
		diff(t, 3, len(ids))
		until(t, d, task, store.ReceiverDone)
		var tried []string
		for range 6 {
			tried = append(tried, <-outcomes)
		}
		diff(t, []string{notify.Failed, notify.Failed, notify.Failed, notify.Delivered, notify.Delivered, notify.Delivered}, tried)
		if len(all) > 0 {
			t.Errorf("it hears more: %+v", <-all)
		}
	})
}

// TestWhole: where the form is that of the task, each message tells how it stood then.
func TestWhole(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		acme := desk(t, "acme", notify.Options{Callers: near})
		url, all := receiver(t, well)
		task := open(t, d, "acme", to(t, acme, "whole", url))
		end(t, d, &task)
		run(t, d, map[db.ID]*notify.Desk{"acme": acme}, notify.CourierOptions{})
		diff(t, []string{`"submitted 0"`, `"working 0"`, `"completed 1"`}, bodies(t, all, 3))
		until(t, d, task, store.ReceiverDone)
	})
}

// TestGivenUp: what cannot be told is tried no more, for a reason that is kept.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	inside, outside := desk(t, "inside", notify.Options{Callers: near}), desk(t, "outside", notify.Options{})
	gone, _ := receiver(t, func(int) int { return http.StatusGone })
	down, _ := receiver(t, func(int) int { return http.StatusInternalServerError })
	_, unheard := receiver(t, well)
	elsewhere, heardElsewhere := receiver(t, well)
	moved := httptest.NewServer(http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	t.Cleanup(moved.Close)
	foreign := to(t, inside, "each", gone)
	foreign.Value = to(t, outside, "each", "https://example.com").Value // as if its key were gone
	tests := map[string]struct {
		tenant db.ID
		r      store.Receiver
		reason string
	}{
		"gone":     {"inside", to(t, inside, "each", gone), "it answered 410 Gone"},
		"down":     {"inside", to(t, inside, "each", down), "it answered 500 Internal Server Error"},
		"redirect": {"inside", to(t, inside, "each", moved.URL), "it answered 307 Temporary Redirect"},
		"private":  {"outside", to(t, outside, "each", "https://127.0.0.1:1"), `the address of "127.0.0.1" is not allowed: only public addresses may be called`},
		"http now": {"outside", to(t, desk(t, "outside", notify.Options{Callers: near}), "each", "http://example.com"), "only https addresses are told"},
		"sealed":   {"inside", foreign, "its address is sealed under a key that is gone"},
	}
	runs := map[string]store.Run{}
	for name, tt := range tests {
		runs[name] = open(t, d, tt.tenant, tt.r)
	}
	run(t, d, map[db.ID]*notify.Desk{"inside": inside, "outside": outside}, notify.CourierOptions{First: time.Millisecond, GiveUp: 5 * time.Millisecond})
	for name, tt := range tests {
		if got := until(t, d, runs[name], store.ReceiverDead); got.Error != tt.reason {
			t.Errorf("%s: %q, want %q", name, got.Error, tt.reason)
		}
	}
	if len(unheard)+len(heardElsewhere) > 0 {
		t.Error("somebody else was told")
	}
}

// TestSlow: a receiver that does not answer holds up neither others of its app nor those of another.
func TestSlow(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	acme, globex := desk(t, "acme", notify.Options{Callers: near}), desk(t, "globex", notify.Options{Callers: near})
	stop := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(func() { close(stop); hangs.Close() })
	for range 3 {
		open(t, d, "acme", to(t, acme, "each", hangs.URL))
	}
	run(t, d, map[db.ID]*notify.Desk{"acme": acme, "globex": globex}, notify.CourierOptions{Concurrent: 5, PerTenant: 4})
	for tenant, desk := range map[db.ID]*notify.Desk{"acme": acme, "globex": globex} {
		url, all := receiver(t, well)
		open(t, d, tenant, to(t, desk, "each", url))
		diff(t, []string{`"submitted"`, `"working"`}, bodies(t, all, 2))
	}
}

// TestNoDesk: an app that does not answer tells nothing, and nothing of that counts as a failure.
func TestNoDesk(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	acme, other := desk(t, "acme", notify.Options{Callers: near}), desk(t, "other", notify.Options{Callers: near})
	url, all := receiver(t, well)
	quiet := open(t, d, "acme", to(t, acme, "each", url))
	run(t, d, map[db.ID]*notify.Desk{"other": other}, notify.CourierOptions{})
	theirs, heard := receiver(t, well)
	open(t, d, "other", to(t, other, "each", theirs))
	bodies(t, heard, 2)
	if got := until(t, d, quiet, store.ReceiverOpen); got.Attempts != 0 || len(all) > 0 {
		t.Errorf("%+v, and %d were told", got, len(all))
	}
}
