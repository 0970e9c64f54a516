package v1_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/ratelimit"
)

// TestLimits checks that calls count in every form: the limit headers are sent before a stream begins, and each
// message of a WebSocket is a call.
func TestLimits(t *testing.T) {
	t.Parallel()
	if _, end := ratelimit.Day.BoundsAt(time.Now()); time.Until(end) < 30*time.Second {
		time.Sleep(time.Until(end))
	}
	limited := slowConfig + "rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: day, limit: 4}]}\n"
	h := surfacetest.New(t, surfacetest.Options{Default: limited}, func(*surfacetest.Fixture) []surface.Route { return v1.Routes(v1.Options{}) })
	for i, step := range []struct {
		path      string
		status    int
		remaining string
	}{
		{"/message:send", 200, "3"}, {"/message:stream", 200, "2"}, {"", 0, "1"}, {"/message:stream", 200, "0"},
		{"/message:send", 429, "0"}, {"/message:stream", 429, "0"}, {"", 0, ""},
	} {
		if step.path == "" {
			s := dialSocket(t, h, "")
			s.WriteFrame(newNumberedMessage("m"+step.remaining, "hello"))
			receivedText := strings.Join(s.ReadAnswer(), "\n")
			if refused := strings.Contains(receivedText, "RESOURCE_EXHAUSTED") && strings.Contains(receivedText, `"user-count-day"`); refused != (step.remaining == "") {
				t.Errorf("step %d got %s", i, receivedText)
			}
			continue
		}
		resp, body := h.Do(t, http.MethodPost, agentPath+step.path, "", newNumberedMessage("", "hello"))
		if got := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != step.status || got != step.remaining {
			t.Errorf("step %d: %d with %q left, want %d with %q: %s", i, resp.StatusCode, got, step.status, step.remaining, body)
		}
	}
}
