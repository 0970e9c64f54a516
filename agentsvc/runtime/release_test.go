package runtime_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/task"
	"stoa/billing"
	"stoa/billing/usage"
	"stoa/tenancy/db/dbtest"
)

// TestCancelledTurnsReleaseTokens checks that a cancelled turn releases what it has reserved of the limits, and
// that the usage of its model until then counts.
func TestCancelledTurnsReleaseTokens(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	b, err := billing.Open(t.Context(), d, nil, billing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	yaml, _ := newAppSQLite(t)
	src := fmt.Sprintf(limitSource, `""`, yaml)
	src = strings.Replace(src, "    script:\n", "    script:\n      - {when: {text: slow}, then: [{say: \"one two three \"}, {say: never, pause: 10m}]}\n", 1)
	a := newAppWith(t, d, mustParse(t, src, config.Options{}), privateNetworkTenant, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) { h.Billing = b })
	const reserved = 1000
	accepted, events, err := a.Tasks().Messages.SubmitAndFollow(t.Context(), withReservation(t, a, newSubmission("slow "+strings.Repeat("word", reserved))))
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Chunk != nil {
			break
		}
	}
	if _, tokens := countedUsage(t, a); tokens < reserved {
		t.Fatalf("the turn holds %d tokens, want %d at least", tokens, reserved)
	}
	if _, err := a.Tasks().Canceller.Cancel(t.Context(), task.Visibility{}, accepted.ID); err != nil {
		t.Fatal(err)
	}
	var tokens int64
	var sum usage.Sum
	for range 500 {
		_, tokens = countedUsage(t, a)
		if _, sum, err = b.Usage.SumUsage(t.Context(), privateNetworkTenant.ID, "", usage.Query{From: time.UnixMicro(0), To: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if tokens > 0 && tokens == sum.Tokens() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if tokens < 3 || tokens >= reserved || tokens != sum.Tokens() {
		t.Errorf("%d tokens are counted, want the %d that were used", tokens, sum.Tokens())
	}
}
