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
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newReceiver returns a receiver at an address.
func newReceiver(t *testing.T, d *notify.Notifier, format, url string) receiver.Receiver {
	t.Helper()
	r, err := d.NewReceiver(ana, "r", format, notify.Address{URL: url, Token: "token", Scheme: "Bearer", Credentials: "credentials"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRetriedDelivery checks that a receiver that fails at first gets all events in order, that a repeated message has
// the same id, and that the signature can be verified.
func TestRetriedDelivery(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		secret := []byte(strings.Repeat("s", 32))
		outcomes := make(chan string, 100)
		acme := newNotifier(t, "acme", notify.Options{CallerEgress: privateEgress, Secret: secret, OnAttempt: func(outcome string) { outcomes <- outcome }})
		url, all := startReceiver(t, func(n int) int {
			if n <= 3 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		task := acceptTask(t, d, "acme", newReceiver(t, acme, "each", url))
		startDispatchers(t, d, map[db.ID]*notify.Notifier{"acme": acme}, notify.DispatcherOptions{InitialBackoff: time.Millisecond})
		first := nextRequest(t, all)
		for range 3 {
			again := nextRequest(t, all)
			checkEqual(t, []string{first.body, first.header.Get("Webhook-Id")}, []string{again.body, again.header.Get("Webhook-Id")})
		}
		working := nextRequest(t, all)
		completeTask(t, d, &task)
		completed := nextRequest(t, all)
		checkEqual(t, []string{`"submitted"`, `"working"`, `"completed"`}, []string{first.body, working.body, completed.body})
		ids := map[string]bool{}
		for _, h := range []receivedRequest{first, working, completed} {
			id, at := h.header.Get("Webhook-Id"), h.header.Get("Webhook-Timestamp")
			ids[id] = true
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(id + "." + at + "." + h.body))
			checkEqual(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), h.header.Get("Webhook-Signature"))
			checkEqual(t, []string{"Bearer credentials", "token", "token", "application/json"}, []string{
				h.header.Get("Authorization"), h.header.Get("X-A2A-Notification-Token"), h.header.Get("A2A-Notification-Token"), h.header.Get("Content-Type"),
			})
		}
		checkEqual(t, 3, len(ids))
		waitForState(t, d, task, receiver.Done)
		var outcomesSeen []string
		for range 6 {
			outcomesSeen = append(outcomesSeen, <-outcomes)
		}
		checkEqual(t, []string{notify.OutcomeFailed, notify.OutcomeFailed, notify.OutcomeFailed, notify.OutcomeDelivered, notify.OutcomeDelivered, notify.OutcomeDelivered}, outcomesSeen)
		if len(all) > 0 {
			t.Errorf("it hears more: %+v", <-all)
		}
	})
}

// TestFormatWithTask checks a format with the task: each message has its state as of the event.
func TestFormatWithTask(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		acme := newNotifier(t, "acme", notify.Options{CallerEgress: privateEgress})
		url, all := startReceiver(t, respondNoContent)
		task := acceptTask(t, d, "acme", newReceiver(t, acme, "whole", url))
		completeTask(t, d, &task)
		startDispatchers(t, d, map[db.ID]*notify.Notifier{"acme": acme}, notify.DispatcherOptions{})
		checkEqual(t, []string{`"submitted 0"`, `"working 0"`, `"completed 1"`}, nextBodies(t, all, 3))
		waitForState(t, d, task, receiver.Done)
	})
}

// TestGivenUp checks that a delivery that can never succeed is not retried, with the reason stored.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	inside, outside := newNotifier(t, "inside", notify.Options{CallerEgress: privateEgress}), newNotifier(t, "outside", notify.Options{})
	gone, _ := startReceiver(t, func(int) int { return http.StatusGone })
	down, _ := startReceiver(t, func(int) int { return http.StatusInternalServerError })
	_, otherRequests := startReceiver(t, respondNoContent)
	elsewhere, receivedElsewhere := startReceiver(t, respondNoContent)
	moved := httptest.NewServer(http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	t.Cleanup(moved.Close)
	foreign := newReceiver(t, inside, "each", gone)
	foreign.Value = newReceiver(t, outside, "each", "https://example.com").Value // as if its key had been removed
	tests := map[string]struct {
		tenant db.ID
		r      receiver.Receiver
		reason string
	}{
		"gone":     {"inside", newReceiver(t, inside, "each", gone), "it answered 410 Gone"},
		"down":     {"inside", newReceiver(t, inside, "each", down), "it answered 500 Internal Server Error"},
		"redirect": {"inside", newReceiver(t, inside, "each", moved.URL), "it answered 307 Temporary Redirect"},
		"private":  {"outside", newReceiver(t, outside, "each", "https://127.0.0.1:1"), `the address of "127.0.0.1" is not allowed: only public addresses may be called`},
		"http now": {"outside", newReceiver(t, newNotifier(t, "outside", notify.Options{CallerEgress: privateEgress}), "each", "http://example.com"), "only https addresses are notified"},
		"sealed":   {"inside", foreign, "its address is encrypted under a master key that this process does not have"},
	}
	runs := map[string]store.Run{}
	for name, tt := range tests {
		runs[name] = acceptTask(t, d, tt.tenant, tt.r)
	}
	startDispatchers(t, d, map[db.ID]*notify.Notifier{"inside": inside, "outside": outside}, notify.DispatcherOptions{InitialBackoff: time.Millisecond, MaxFailing: 5 * time.Millisecond})
	for name, tt := range tests {
		if got := waitForState(t, d, runs[name], receiver.Dead); got.Error != tt.reason {
			t.Errorf("%s: %q, want %q", name, got.Error, tt.reason)
		}
	}
	if len(otherRequests)+len(receivedElsewhere) > 0 {
		t.Error("another receiver got a delivery")
	}
}

// TestSlow checks that a receiver that does not respond delays neither other receivers of its app nor those of another.
func TestSlow(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	acme, globex := newNotifier(t, "acme", notify.Options{CallerEgress: privateEgress}), newNotifier(t, "globex", notify.Options{CallerEgress: privateEgress})
	stop := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(func() { close(stop); hangs.Close() })
	for range 3 {
		acceptTask(t, d, "acme", newReceiver(t, acme, "each", hangs.URL))
	}
	startDispatchers(t, d, map[db.ID]*notify.Notifier{"acme": acme, "globex": globex}, notify.DispatcherOptions{MaxConcurrent: 5, MaxPerTenant: 4})
	for tenant, notifier := range map[db.ID]*notify.Notifier{"acme": acme, "globex": globex} {
		url, all := startReceiver(t, respondNoContent)
		acceptTask(t, d, tenant, newReceiver(t, notifier, "each", url))
		checkEqual(t, []string{`"submitted"`, `"working"`}, nextBodies(t, all, 2))
	}
}

// TestUnavailableNotifier checks that nothing is sent for an app that is unavailable, and that this is not counted as a
// failure.
func TestUnavailableNotifier(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	acme, other := newNotifier(t, "acme", notify.Options{CallerEgress: privateEgress}), newNotifier(t, "other", notify.Options{CallerEgress: privateEgress})
	url, all := startReceiver(t, respondNoContent)
	quiet := acceptTask(t, d, "acme", newReceiver(t, acme, "each", url))
	startDispatchers(t, d, map[db.ID]*notify.Notifier{"other": other}, notify.DispatcherOptions{})
	theirs, received := startReceiver(t, respondNoContent)
	acceptTask(t, d, "other", newReceiver(t, other, "each", theirs))
	nextBodies(t, received, 2)
	if got := waitForState(t, d, quiet, receiver.Open); got.Attempts != 0 || len(all) > 0 {
		t.Errorf("%+v, and %d were told", got, len(all))
	}
}
