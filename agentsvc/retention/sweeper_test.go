package retention

import (
	"testing"
	"time"

	"stoa/agentsvc/store"
)

// TestSweepPeriod checks that apps with long retentions are swept rarely.
func TestSweepPeriod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    store.Retention
		want time.Duration
	}{
		{store.Retention{Tasks: time.Hour, Sessions: time.Minute}, 3 * time.Second},
		{store.Retention{Tasks: 720 * time.Hour}, 6 * time.Hour},
		{store.Retention{Events: 40 * time.Minute, Tasks: 720 * time.Hour}, 2 * time.Minute},
	} {
		if got := sweepPeriod(c.r); got != c.want {
			t.Errorf("%+v: every %s, want %s", c.r, got, c.want)
		}
	}
}
