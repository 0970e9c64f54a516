package faults_test

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestUsageOutage makes the database unavailable while models answer, once stopped and once frozen. Stoa survives:
// the usage of that time is recorded when the database is back, each call once, with the tokens that the model
// reported. Meanwhile a request ends by its deadline.
func TestUsageOutage(t *testing.T) {
	t.Parallel()
	pg := newPostgres(t)
	c := startCluster(t, clusterOptions{database: pg.createDatabase("stoa"), args: append([]string{"--queue-max-retries", "100", "--queue-max-delay", "500ms", "--queue-workers", "16"}, longStaleArgs...)})
	c.createApp("bounded", c.appConfig())
	budget := map[string]any{"name": "cap", "unit": "tokens", "amount": 1_000_000, "window": "total", "hard": true}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/bounded/budgets", budget, nil))
	token := c.createToken("bounded", "ana")
	sleepContext(t.Context(), 2*time.Second)
	const calls = 8
	outages := []struct {
		name  string
		stop  func()
		back  func()
		lasts time.Duration
	}{
		{"dead", func() { pg.stopServer("immediate") }, pg.startServer, 15 * time.Second},
		{"frozen", func() { pg.signalProcesses(syscall.SIGSTOP) }, func() { pg.signalProcesses(syscall.SIGCONT) }, 20 * time.Second},
	}
	if !isFull {
		reportSkipped(t, "a database that is frozen, or unavailable for longer than 6 s; make faults does it")
		outages = outages[:1]
		outages[0].lasts = 6 * time.Second
	}
	for _, x := range outages {
		blocked := c.model.barriers.blockRequests("hello")
		for i := range calls {
			n := c.nodes[0].client
			if i%2 == 1 {
				n = &client{baseURL: n.baseURL, token: token, http: c.client}
			}
			_, err := n.sendMessage(t.Context(), message{agent: "modelled", text: "hello", background: true})
			c.requireNoError(err)
		}
		for range calls {
			blocked.waitForRequest(t)
		}
		x.stop()
		blocked.releaseRequests()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), requestDeadline)
		err := c.nodes[0].requestJSON(ctx, http.MethodGet, "/tasks", nil, nil)
		cancel()
		took := time.Since(began)
		if r, ok := errors.AsType[*responseError](err); !ok || r.status != http.StatusServiceUnavailable || r.retryAfter == "" {
			t.Errorf("%s: a request is answered %v after %v", x.name, err, took)
		}
		reportf(t, "%s: a request was refused after %v", x.name, took.Round(100*time.Millisecond))
		sleepContext(t.Context(), x.lasts-took)
		answered := c.model.countCompleted("hello")
		x.back()
		if answered == 0 {
			t.Errorf("%s: no call was answered while the database was unavailable", x.name)
		}
		took = c.waitWithin(90*time.Second, x.name+": every task has ended", func() bool {
			return c.querySQL("SELECT COUNT(*) FROM task WHERE state NOT IN ('completed', 'failed')")[0][0].(int64) == 0
		})
		rows := func() (n, in, out int64) {
			r := c.querySQL("SELECT COUNT(*), COALESCE(SUM(input_tokens), 0)::BIGINT, COALESCE(SUM(output_tokens), 0)::BIGINT FROM usage WHERE kind = 'model' AND NOT estimated")[0]
			return r[0].(int64), r[1].(int64), r[2].(int64)
		}
		var n, in, out, want int64
		deadline := time.Now().Add(time.Minute)
		for time.Now().Before(deadline) {
			want = int64(c.model.countCompleted("hello"))
			if n, in, out = rows(); n == want {
				break
			}
			sleepContext(t.Context(), 100*time.Millisecond)
		}
		reportf(t, "%s: %d calls were answered, %d of them while the database was unavailable; %d rows of usage; every task had ended %v after its return", x.name, want,
			answered, n, took.Round(100*time.Millisecond))
		if n != want || in != 10*want || out != 3*want {
			t.Errorf("%s: %d calls were answered; there are %d rows with %d and %d tokens, want %d and %d", x.name, want, n, in, out, 10*want, 3*want)
		}
	}
	if !isFull {
		reportSkipped(t, "that the budget stands right: what the calls had reserved takes 40 s to lapse")
		return
	}
	took := c.waitWithin(90*time.Second, "the budget stands at what its app has used", func() bool {
		var list struct {
			Budgets []struct{ Committed, Reserved int64 }
		}
		c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodGet, "/admin/apps/bounded/budgets", nil, &list))
		used := c.querySQL("SELECT COALESCE(SUM(input_tokens + output_tokens), 0)::BIGINT FROM usage u JOIN app a ON a.tenant = u.tenant WHERE a.name = 'bounded' AND kind = 'model'")[0][0].(int64)
		return list.Budgets[0].Committed == used && list.Budgets[0].Reserved == 0
	})
	reportf(t, "the budget stood right %v later", took.Round(100*time.Millisecond))
}
