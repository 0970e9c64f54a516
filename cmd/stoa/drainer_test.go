package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestDrainer: a process that stops waits for those who ask whether it is ready, and for nobody else.
func TestDrainer(t *testing.T) {
	const limit = 5 * time.Second
	for _, c := range []struct {
		name     string
		asks     time.Duration // a balancer asks this often; 0 = there is none
		requests time.Duration // for how long requests come after the stop, one in 100 ms
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
