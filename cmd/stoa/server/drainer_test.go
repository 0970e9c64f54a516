package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestDrainer checks that a stopping process waits for load balancers that probe /ready, and only for those.
func TestDrainer(t *testing.T) {
	const limit = 5 * time.Second
	for _, c := range []struct {
		name     string
		asks     time.Duration // interval of the balancer's probes; 0 = no balancer
		requests time.Duration // how long requests arrive after the stop, one in 100 ms
		want     time.Duration
	}{
		{"nobody asks", 0, 0, 0},
		{"a balancer asks", 200 * time.Millisecond, 0, 600 * time.Millisecond},
		{"requests still come", 200 * time.Millisecond, time.Second, 1500 * time.Millisecond},
		{"a balancer asks seldom", time.Minute, 0, limit},
		{"requests never end", 200 * time.Millisecond, time.Minute, limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newDrainer()
				over, stop := context.WithCancel(t.Context())
				if c.asks > 0 {
					if err := l.checkReady(t.Context()); err != nil {
						t.Errorf("not ready while it serves: %v", err)
					}
				}
				time.Sleep(time.Hour)
				began := time.Now()
				every := func(d, until time.Duration, do func()) {
					for d > 0 && over.Err() == nil && time.Since(began) < until {
						select {
						case <-over.Done():
						case <-time.After(d):
							do()
						}
					}
				}
				go every(c.asks, time.Hour, func() {
					if l.checkReady(t.Context()) == nil {
						t.Error("it says that it is ready")
					}
				})
				handler := l.trackRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				go every(100*time.Millisecond, c.requests, func() {
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/agents/a", nil))
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ready", nil))
				})
				l.awaitBalancers(t.Context(), limit)
				got := time.Since(began)
				stop()
				if got < c.want || got > c.want+50*time.Millisecond {
					t.Errorf("it waited %v, want %v", got, c.want)
				}
			})
		})
	}
}
