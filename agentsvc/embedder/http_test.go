package embedder

import (
	"net/http"
	"testing"
	"time"
)

// TestRetryAfter checks that the vendor's demand is part of the error where another attempt makes sense.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	inAnHour := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		status    int
		header    string
		low, high time.Duration
	}{
		{429, "7", 7 * time.Second, 7 * time.Second},
		{503, inAnHour, 59 * time.Minute, time.Hour},
		{429, "", 0, 0},
		{429, "-5", 0, 0},
		{429, "soon", 0, 0},
		{400, "7", 0, 0},
	} {
		if got := newStatusError("x", c.status, c.header).RetryAfter; got < c.low || got > c.high {
			t.Errorf("status %d with %q: %s, want %s to %s", c.status, c.header, got, c.low, c.high)
		}
	}
}
