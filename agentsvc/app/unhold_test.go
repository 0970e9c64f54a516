package app_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/billing"
	"stoa/tenancy/db/dbtest"
)

// TestCancelledTurnsHoldNothing: a turn that is cancelled gives back what it holds of the limits, and what its model had used
// by then counts.
func TestCancelledTurnsHoldNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	b, err := billing.Open(t.Context(), d, nil, billing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	yaml, _ := ownSQLite(t)
	src := fmt.Sprintf(limitSource, `""`, yaml)
	src = strings.Replace(src, "    script:\n", "    script:\n      - {when: {text: slow}, then: [{say: \"one two three \"}, {say: never, pause: 10m}]}\n", 1)
	a := houseOf(t, d, parsed(t, src, config.Options{}), inside, slog.New(slog.DiscardHandler), func(h *app.House) { h.Billing = b })
	const held = 1000
	accepted, events, err := a.Tasks().Call(t.Context(), admitted(t, a, say("slow "+strings.Repeat("word", held))))
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
	if _, tokens := used(t, a); tokens < held {
		t.Fatalf("the turn holds %d tokens, want %d at least", tokens, held)
	}
	if _, err := a.Tasks().Cancel(t.Context(), task.Reach{}, accepted.ID); err != nil {
		t.Fatal(err)
	}
	var tokens int64
	var sum billing.Sum
	for range 500 {
		_, tokens = used(t, a)
		if _, sum, err = b.Usage(t.Context(), inside.ID, "", billing.Query{From: time.UnixMicro(0), To: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if tokens > 0 && tokens == sum.Tokens() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if tokens < 3 || tokens >= held || tokens != sum.Tokens() {
		t.Errorf("%d tokens are counted, want the %d that were used", tokens, sum.Tokens())
	}
}
