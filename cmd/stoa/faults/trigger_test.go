package faults_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const hookSecret = "the secret of all the hooks"

// timed is the configuration of an app whose agents are started without a caller: n by schedules of every hour, one by a
// schedule of every half, one by a webhook.
func (c *cluster) timed(n int) string {
	var b strings.Builder
	b.WriteString(strings.NewReplacer("RECORDER", c.tools.URL, "SECRET", hookSecret).Replace(`
llms:
  script:
    provider: scripted
    script:
      - when: {text: "^record (?P<n>\\S+)"}
        then: [{call: {tool: record, arguments: {url: "RECORDER/{{n}}", method: POST}}}]
      - then: [{say: "done"}]
tools:
  record: {type: function, handler: http_request, max_execution_time: 20s}
agents:
  half: {llm: script, trigger: {type: schedule, cron: "*/30 * * * *", input: tick}}
  hooked: {llm: script, tools: [record], trigger: {type: webhook, secret: "SECRET", webhook_input: {template: "record {{.n}}"}}}
`))
	for i := range n {
		fmt.Fprintf(&b, "  hourly%d: {llm: script, trigger: {type: schedule, cron: \"0 * * * *\", input: tick}}\n", i)
	}
	return b.String()
}

// ticks returns the scheduled times, in seconds, of which agents like a pattern have tasks, and how many tasks they have.
func (c *cluster) ticks(agents string) (times []string, tasks int64) {
	c.Helper()
	for _, row := range c.sql(`SELECT agent, message_id FROM sent WHERE agent LIKE $1 AND owner_iss = 'trigger'`, agents) {
		times = append(times, fmt.Sprint(row[0], " ", row[1]))
	}
	return times, c.sql(`SELECT COUNT(*) FROM task WHERE agent LIKE $1`, agents)[0][0].(int64)
}

// settled reports whether no schedule of agents like a pattern is due.
func (c *cluster) settled(agents string) bool {
	return c.sql(`SELECT COUNT(*) FROM schedule WHERE agent LIKE $1 AND next_at <= stoa_now()`, agents)[0][0].(int64) == 0
}

// known waits until so many schedules are.
func (c *cluster) known(schedules int) {
	c.Helper()
	c.within(15*time.Second, "the schedules are known", func() bool {
		return c.sql(`SELECT COUNT(*) FROM schedule`)[0][0].(int64) == int64(schedules)
	})
}

// hours makes the schedules of so many agents due that start one every hour, has something happen meanwhile, and wants each tick to
// be one task.
func (c *cluster) hours(agents int, meanwhile func()) {
	c.Helper()
	hour := func() int64 { return time.Now().Truncate(time.Hour).Unix() }
	began := hour()
	c.sql(`UPDATE schedule SET next_at = CAST($1 AS BIGINT) * 1000000 WHERE agent LIKE 'hourly%' RETURNING agent`, began)
	meanwhile()
	c.within(30*time.Second, "every tick is settled", func() bool { return c.settled("hourly%") })
	times, tasks := c.ticks("hourly%")
	if int64(len(times)) != tasks || hour() == began && len(times) != agents {
		c.Errorf("%d agents have %d tasks of %d ticks: %v", agents, tasks, len(times), times)
	}
}

// TestF11Schedule makes schedules due while three replicas look, and kills one that may be at it; then it stops all of them
// while ticks pass. Each tick that was due is one task, and of those that were missed the last one is. The replicas' clocks
// are ten minutes off in the long form.
func TestF11Schedule(t *testing.T) {
	t.Parallel()
	s, agents := setup{nodes: 3}, 12
	if full {
		clocks := []string{"0", "600", "-600"}
		s.build, s.env, agents = skewed, func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }, 60
	} else {
		leftOut(t, "clocks that are ten minutes off; make faults does it")
	}
	c := up(t, s)
	c.app("timed", c.timed(agents))
	c.known(agents + 1)
	var killed time.Time
	c.hours(agents, func() {
		c.within(5*time.Second, "a tick is taken", func() bool {
			return c.sql(`SELECT COUNT(*) FROM schedule WHERE agent LIKE 'hourly%' AND (held_until > stoa_now() OR last_at > 0)`)[0][0].(int64) > 0
		})
		c.nodes[1].kill()
		killed = time.Now()
	})
	say(t, "%d ticks were settled %v after a replica was killed in the middle", agents, time.Since(killed).Round(time.Millisecond))

	// Everything is down while three ticks pass.
	for _, n := range c.nodes {
		n.kill()
	}
	half := time.Now().Truncate(30 * time.Minute).Unix()
	c.sql(`UPDATE schedule SET next_at = CAST($1 AS BIGINT) * 1000000, held_until = 0 WHERE agent = 'half' RETURNING agent`, half-3600)
	together(len(c.nodes), func(i int) {
		if err := c.nodes[i].start(); err != nil {
			t.Error(err)
		}
	})
	c.within(30*time.Second, "what was missed is settled", func() bool { return c.settled("half") })
	times, tasks := c.ticks("half")
	if want := fmt.Sprint("half tick-", half); len(times) == 0 || times[0] != want || tasks != int64(len(times)) || tasks > 1 && time.Now().Unix() < half+1800 {
		t.Errorf("after an hour of downtime there are %d tasks of the ticks %v, want one of %s", tasks, times, want)
	}
	token := c.mint("timed", "ana")
	c.within(rescue, "every task has ended well", func() bool {
		var list struct {
			Total int `json:"total_size"`
		}
		cl := &client{base: c.nodes[0].base, token: token, http: c.client}
		c.must(cl.ask(t.Context(), http.MethodGet, "/tasks?status=completed", nil, &list))
		return list.Total == len(c.sql(`SELECT 1 FROM task`))
	})
}

// delivered is what the sender of a delivery is answered.
type delivered struct {
	TaskID string `json:"task_id"`
	Status string `json:"status"`
}

// deliver sends a signed delivery to the webhook of an app.
func (c *client) deliver(ctx context.Context, app string, body map[string]any) (out delivered, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write(raw)
	a, err := c.do(ctx, http.MethodPost, "/apps/"+app+"/webhooks/hooked", body, "X-Webhook-Signature", hex.EncodeToString(mac.Sum(nil)))
	if err == nil && a.status/100 != 2 {
		err = a.read(nil)
	}
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(a.body, &out) // its result is not that of a JSON-RPC call
}

// TestF11Webhook sends one delivery fifty times at once, over a balancer to three replicas: one run, and everybody is told of
// it.
func TestF11Webhook(t *testing.T) {
	t.Parallel()
	rounds := 20
	if !full {
		rounds = 2
	}
	c := up(t, setup{nodes: 3})
	c.app("timed", c.timed(0))
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.base[len("http://"):])
	}
	door := &client{base: newBalancer(t, addrs...), http: c.client}
	c.within(10*time.Second, "the balancer finds the processes", func() bool {
		a, err := door.do(t.Context(), http.MethodGet, "/ready", nil)
		return err == nil && a.status == http.StatusOK
	})
	for round := range rounds {
		word := "w" + itoa(round)
		ids := make([]string, 50)
		began := time.Now()
		together(len(ids), func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, err := door.deliver(ctx, "timed", map[string]any{"n": word})
			if ids[i] = out.TaskID; err != nil || out.Status != "completed" {
				t.Errorf("%s: a sender was answered %q (%v)", word, out.Status, err)
			}
		})
		took := time.Since(began)
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("%s: the senders were told of the tasks %s and %s", word, ids[0], id)
			}
		}
		if n := len(c.tools.of(word)); n != 1 {
			t.Errorf("%s: one delivery had %d effects", word, n)
		}
		if round == 0 {
			say(t, "50 equal deliveries were answered in %v", took.Round(time.Millisecond))
		}
	}
	if n := c.sql(`SELECT COUNT(*) FROM task WHERE agent = 'hooked'`)[0][0].(int64); n != int64(rounds) {
		t.Errorf("%d deliveries have %d tasks", rounds, n)
	}
}
