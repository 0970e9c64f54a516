package faults_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestUsageOutage takes the database away while models answer, dead once and frozen once. Stoa lives: what was used meanwhile is
// written down when the database is back, each call once, with the tokens that the model told.
func TestUsageOutage(t *testing.T) {
	t.Parallel()
	pg := newPostgres(t)
	c := up(t, setup{database: pg.create("stoa"), args: append([]string{"--queue-max-retries", "100", "--queue-max-delay", "500ms", "--queue-workers", "16"}, unhurried...)})
	c.app("bounded", c.config())
	budget := map[string]any{"name": "cap", "unit": "tokens", "amount": 1_000_000, "window": "total", "hard": true}
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPost, "/admin/apps/bounded/budgets", budget, nil))
	token := c.mint("bounded", "ana")
	wait(t.Context(), 2*time.Second)
	const calls = 8
	outages := []struct {
		name  string
		away  func()
		back  func()
		lasts time.Duration
	}{
		{"dead", func() { pg.stop("immediate") }, pg.start, 15 * time.Second},
		{"frozen", func() { pg.signal(syscall.SIGSTOP) }, func() { pg.signal(syscall.SIGCONT) }, 20 * time.Second},
	}
	if !full {
		leftOut(t, "a database that is frozen, or away for longer than 6 s; make faults does it")
		outages = outages[:1]
		outages[0].lasts = 6 * time.Second
	}
	for _, x := range outages {
		held := c.model.gates.close("hello")
		for i := range calls {
			n := c.nodes[0].client
			if i%2 == 1 {
				n = &client{base: n.base, token: token, http: c.client}
			}
			_, err := n.send(t.Context(), message{agent: "modelled", text: "hello", background: true})
			c.must(err)
		}
		for range calls {
			held.await(t)
		}
		x.away()
		held.release()
		wait(t.Context(), x.lasts)
		answered := c.model.answered("hello")
		x.back()
		if answered == 0 {
			t.Errorf("%s: no call was answered while the database was away", x.name)
		}
		took := c.within(90*time.Second, x.name+": every task has ended", func() bool {
			return c.sql("SELECT COUNT(*) FROM task WHERE state NOT IN ('completed', 'failed')")[0][0].(int64) == 0
		})
		rows := func() (n, in, out int64) {
			r := c.sql("SELECT COUNT(*), COALESCE(SUM(input_tokens), 0)::BIGINT, COALESCE(SUM(output_tokens), 0)::BIGINT FROM usage WHERE kind = 'model' AND NOT estimated")[0]
			return r[0].(int64), r[1].(int64), r[2].(int64)
		}
		var n, in, out, want int64
		deadline := time.Now().Add(15 * time.Second)
		for time.Now().Before(deadline) {
			want = int64(c.model.answered("hello"))
			if n, in, out = rows(); n == want {
				break
			}
			wait(t.Context(), 100*time.Millisecond)
		}
		say(t, "%s: %d calls were answered, %d of them while the database was away; %d rows of usage; every task had ended %v after its return", x.name, want,
			answered, n, took.Round(100*time.Millisecond))
		if n != want || in != 10*want || out != 3*want {
			t.Errorf("%s: %d calls were answered; there are %d rows with %d and %d tokens, want %d and %d", x.name, want, n, in, out, 10*want, 3*want)
		}
	}
	if !full {
		leftOut(t, "that the budget stands right: what the calls had reserved takes 40 s to lapse")
		return
	}
	took := c.within(90*time.Second, "the budget stands at what its app has used", func() bool {
		var list struct {
			Budgets []struct{ Committed, Reserved int64 }
		}
		c.must(c.nodes[0].admin().ask(t.Context(), http.MethodGet, "/admin/apps/bounded/budgets", nil, &list))
		used := c.sql("SELECT COALESCE(SUM(input_tokens + output_tokens), 0)::BIGINT FROM usage u JOIN app a ON a.tenant = u.tenant WHERE a.name = 'bounded' AND kind = 'model'")[0][0].(int64)
		return list.Budgets[0].Committed == used && list.Budgets[0].Reserved == 0
	})
	say(t, "the budget stood right %v later", took.Round(100*time.Millisecond))
}
