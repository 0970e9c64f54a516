package main

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const limitedApp = `
llms: {demo: {provider: scripted}}
agents: {assistant: {llm: demo}}
`

// TestLimitsOfAFleet sends 200 concurrent calls to two processes: together they admit exactly as many as the operator
// allows. A change of the limit acts at both within two seconds.
func TestLimitsOfAFleet(t *testing.T) {
	onEachFleetSerially(t, func(t *testing.T, _ bool, args []string) {
		replicas := []*process{startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)}
		replicas[0].createApp(t, "acme", limitedApp)
		replicas[0].createApp(t, "globex", limitedApp)
		limit := func(app string, n int) {
			t.Helper()
			rate := map[string]any{"per": "app", "type": "count", "window": "month", "limit": n}
			replicas[0].requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/"+app, testSecret, map[string]any{"limits": map[string]any{"rate": []any{rate}}})
		}
		limit("acme", 25)
		limit("globex", 25)
		token := replicas[0].createToken(t, "acme", "ana", nil)
		answer := func(i int) int {
			status, body := replicas[i%2].doRequest(t, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hello")))
			if status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Errorf("%d %s", status, body)
			}
			return status
		}
		time.Sleep(2 * time.Second) // until the other process must know
		var in atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				if answer(i) == http.StatusOK {
					in.Add(1)
				}
			})
		}
		all.Wait()
		switch elsewhere := slices.ContainsFunc(replicas, func(p *process) bool { return strings.Contains(p.Output(), "for now") }); {
		case in.Load() == 25:
		case elsewhere && in.Load() > 25 && in.Load() <= 50:
			t.Skip("NOT JUDGED: this machine is too busy, a process has taken its Redis for dead")
		default:
			t.Errorf("%d calls were let in, want 25", in.Load())
		}
		limit("acme", 27)
		began := time.Now()
		for i := range replicas {
			for answer(i) != http.StatusOK {
				if time.Since(began) > 20*time.Second {
					t.Fatalf("process %d knows of no change after %v", i, time.Since(began))
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		if answer(0) == http.StatusOK || answer(1) == http.StatusOK {
			t.Error("one more is let in than is allowed")
		}
		token = replicas[0].createToken(t, "globex", "ana", nil)
		for i := range 25 {
			if answer(i) != http.StatusOK {
				t.Errorf("another app is refused its call %d", i)
			}
		}
	})
}

func TestRateArguments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		arg  string
		want *rateRecord // nil = it is refused
	}{
		{"app:count:minute=100", &rateRecord{Per: "app", Type: "count", Window: "minute", Limit: 100}},
		{"agent/helper:token:day=5", &rateRecord{Per: "agent", Agent: "helper", Type: "token", Window: "day", Limit: 5}},
		{"key:count:month=1", &rateRecord{Per: "key", Type: "count", Window: "month", Limit: 1}},
		{"app:count:minute", nil},
		{"app:count=3", nil},
		{"app:count:minute:second=3", nil},
		{"app:count:minute=many", nil},
	} {
		got, err := parseRates([]string{tt.arg})
		if tt.want == nil {
			if err == nil {
				t.Errorf("%s is read as %+v", tt.arg, got)
			}
			continue
		}
		if err != nil || cmp.Diff([]rateRecord{*tt.want}, got) != "" {
			t.Errorf("%s is read as %+v (%v)", tt.arg, got, err)
		}
		if text := (limitsRecord{Rate: got}).formatRates(); text != tt.arg {
			t.Errorf("%s is shown as %s", tt.arg, text)
		}
	}
}
