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

// timedConfig returns the configuration of an app with triggers: n agents with hourly schedules, one with a
// half-hourly schedule, one with a webhook.
func (c *cluster) timedConfig(n int) string {
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

// queryTicks returns the scheduled times, in seconds, for which agents matching a LIKE pattern have tasks, and the
// number of these tasks.
func (c *cluster) queryTicks(agents string) (times []string, tasks int64) {
	c.Helper()
	for _, row := range c.querySQL(`SELECT agent, message_id FROM sent WHERE agent LIKE $1 AND owner_iss = 'trigger'`, agents) {
		times = append(times, fmt.Sprint(row[0], " ", row[1]))
	}
	return times, c.querySQL(`SELECT COUNT(*) FROM task WHERE agent LIKE $1`, agents)[0][0].(int64)
}

// areTicksDone reports whether no schedule of agents matching a LIKE pattern is due.
func (c *cluster) areTicksDone(agents string) bool {
	return c.querySQL(`SELECT COUNT(*) FROM schedule WHERE agent LIKE $1 AND next_at <= stoa_now()`, agents)[0][0].(int64) == 0
}

// waitForSchedules waits until that many schedules are stored.
func (c *cluster) waitForSchedules(schedules int) {
	c.Helper()
	c.waitWithin(setupTimeout, "the schedules are known", func() bool {
		return c.querySQL(`SELECT COUNT(*) FROM schedule`)[0][0].(int64) == int64(schedules)
	})
}

// runHourlyTicks makes the schedules of that many hourly agents due, calls meanwhile, and requires each tick to be
// one task.
func (c *cluster) runHourlyTicks(agents int, meanwhile func()) {
	c.Helper()
	hour := func() int64 { return time.Now().Truncate(time.Hour).Unix() }
	began := hour()
	c.querySQL(`UPDATE schedule SET next_at = CAST($1 AS BIGINT) * 1000000 WHERE agent LIKE 'hourly%' RETURNING agent`, began)
	meanwhile()
	c.waitWithin(setupTimeout, "every tick is settled", func() bool { return c.areTicksDone("hourly%") })
	times, tasks := c.queryTicks("hourly%")
	if int64(len(times)) != tasks || hour() == began && len(times) != agents {
		c.Errorf("%d agents have %d tasks of %d ticks: %v", agents, tasks, len(times), times)
	}
}

// TestF11Schedule makes schedules due while three replicas run, and kills one that may be starting a tick; then it
// stops all of them while ticks pass. Each due tick is one task, and of the missed ones only the last is started. In
// the long form the replicas' clocks are ten minutes off.
func TestF11Schedule(t *testing.T) {
	t.Parallel()
	s, agents := clusterOptions{nodes: 3}, 12
	if isFull {
		clocks := []string{"0", "600", "-600"}
		s.build, s.env, agents = skewedBuild, func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }, 60
	} else {
		reportSkipped(t, "clocks that are ten minutes off; make faults does it")
	}
	c := startCluster(t, s)
	c.createApp("timed", c.timedConfig(agents))
	c.waitForSchedules(agents + 1)
	var killed time.Time
	c.runHourlyTicks(agents, func() {
		c.waitWithin(setupTimeout, "a tick is taken", func() bool {
			return c.querySQL(`SELECT COUNT(*) FROM schedule WHERE agent LIKE 'hourly%' AND (held_until > stoa_now() OR last_at > 0)`)[0][0].(int64) > 0
		})
		c.nodes[1].killProcess()
		killed = time.Now()
	})
	reportf(t, "%d ticks were settled %v after a replica was killed in the middle", agents, time.Since(killed).Round(time.Millisecond))

	// All processes are stopped while three ticks pass.
	for _, n := range c.nodes {
		n.killProcess()
	}
	half := time.Now().Truncate(30 * time.Minute).Unix()
	c.querySQL(`UPDATE schedule SET next_at = CAST($1 AS BIGINT) * 1000000, held_until = 0 WHERE agent = 'half' RETURNING agent`, half-3600)
	runConcurrently(len(c.nodes), func(i int) {
		if err := c.nodes[i].startProcess(); err != nil {
			t.Error(err)
		}
	})
	c.waitWithin(setupTimeout, "what was missed is settled", func() bool { return c.areTicksDone("half") })
	times, tasks := c.queryTicks("half")
	if want := fmt.Sprint("half tick-", half); len(times) == 0 || times[0] != want || tasks != int64(len(times)) || tasks > 1 && time.Now().Unix() < half+1800 {
		t.Errorf("after an hour of downtime there are %d tasks of the ticks %v, want one of %s", tasks, times, want)
	}
	token := c.createToken("timed", "ana")
	c.waitWithin(rescueTimeout, "every task has ended well", func() bool {
		var list struct {
			Total int `json:"total_size"`
		}
		cl := &client{baseURL: c.nodes[0].baseURL, token: token, http: c.client}
		c.requireNoError(cl.requestJSON(t.Context(), http.MethodGet, "/tasks?status=completed", nil, &list))
		return list.Total == len(c.querySQL(`SELECT 1 FROM task`))
	})
}

// deliveryResponse is the response to a webhook delivery.
type deliveryResponse struct {
	TaskID string `json:"task_id"`
	Status string `json:"status"`
}

// sendDelivery sends a signed delivery to the webhook of an app. Its id follows from the body.
func (c *client) sendDelivery(ctx context.Context, app string, body map[string]any) (out deliveryResponse, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write(raw)
	signature := hex.EncodeToString(mac.Sum(nil))
	a, err := c.doRequest(ctx, http.MethodPost, "/apps/"+app+"/webhooks/hooked", body, "X-Webhook-Signature", signature, "Idempotency-Key", signature)
	if err == nil && a.status/100 != 2 {
		err = a.decodeInto(nil)
	}
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(a.body, &out) // its member result is not that of a JSON-RPC response
}

// TestF11Webhook sends one delivery fifty times concurrently through a load balancer to three replicas: there is one
// run, and every sender gets its result.
func TestF11Webhook(t *testing.T) {
	t.Parallel()
	rounds := 20
	if !isFull {
		rounds = 2
	}
	c := startCluster(t, clusterOptions{nodes: 3})
	c.createApp("timed", c.timedConfig(0))
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.baseURL[len("http://"):])
	}
	balancer := &client{baseURL: startBalancer(t, addrs...), http: c.client}
	c.waitWithin(setupTimeout, "the balancer finds the processes", func() bool {
		a, err := balancer.doRequest(t.Context(), http.MethodGet, "/ready", nil)
		return err == nil && a.status == http.StatusOK
	})
	for round := range rounds {
		word := "w" + itoa(round)
		ids := make([]string, 50)
		began := time.Now()
		runConcurrently(len(ids), func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := balancer.sendDelivery(ctx, "timed", map[string]any{"n": word})
			if ids[i] = out.TaskID; err != nil || out.Status != "completed" {
				t.Errorf("%s: a sender was answered %q (%v)", word, out.Status, err)
			}
		})
		took := time.Since(began)
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("%s: the senders got the tasks %s and %s", word, ids[0], id)
			}
		}
		if n := len(c.tools.effectsNamed(word)); n != 1 {
			t.Errorf("%s: one delivery had %d effects", word, n)
		}
		if round == 0 {
			reportf(t, "50 equal deliveries were answered in %v", took.Round(time.Millisecond))
		}
	}
	if n := c.querySQL(`SELECT COUNT(*) FROM task WHERE agent = 'hooked'`)[0][0].(int64); n != int64(rounds) {
		t.Errorf("%d deliveries have %d tasks", rounds, n)
	}
}
