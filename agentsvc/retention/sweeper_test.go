package retention

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/config"
	"stoa/agentsvc/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPolicy checks that a configuration is read after its secrets are filled in, and that a plan supplies what it
// leaves out.
func TestPolicy(t *testing.T) {
	t.Parallel()
	src := `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}, storage: {retention: {tasks: "${KEPT}"}}}`
	cfg, err := config.Parse([]byte(src), config.Options{Tenant: true, Lookup: func(name string) (string, bool) { return "1h", name == "KEPT" }})
	if err != nil {
		t.Fatal(err)
	}
	got := ReadPolicy(cfg).WithDefaults(store.Retention{Tasks: time.Minute, Events: 2 * time.Hour})
	if want := (Policy{Retention: store.Retention{Tasks: time.Hour, Events: 2 * time.Hour}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

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
