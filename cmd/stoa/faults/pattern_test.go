package faults_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hostileConfig returns the configuration of an app that keeps processors busy: its guardrails and its scripted model
// have patterns of which hundreds of partial matches are open at every character of any text.
func hostileConfig(patterns, least, atMost int) string {
	var list, rules []string
	for i := range patterns {
		p := fmt.Sprintf("(a|b|c|d|e){%d,%d}Z%d", least+i, atMost+i, i)
		list = append(list, "'"+p+"'")
		rules = append(rules, "      - {when: {text: '"+p+"'}, then: [{say: found}]}\n")
	}
	return `
llms:
  plain: {provider: scripted, script: [{then: [{say: "heard"}]}]}
  echo: {provider: scripted, script: [{then: [{say: "{{text}}"}]}]}
  script:
    provider: scripted
    script:
` + strings.Join(rules, "") + `      - then: [{say: "nothing found"}]
guardrails:
  input: {input: {injection: {patterns: [` + strings.Join(list, ", ") + `]}}}
  output: {output: {content: {blocked_patterns: [` + strings.Join(list, ", ") + `]}}}
agents:
  scripted: {llm: script}
  guarded: {llm: plain, guardrails: input}
  answering: {llm: echo, guardrails: output}
`
}

// processorTime returns the processor time of the process since its start; 0 if the system does not report it.
func (n *node) processorTime() time.Duration {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(n.Cmd.Process.Pid) + "/stat")
	_, after, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	var ticks time.Duration
	for _, f := range fields[11:13] { // utime and stime, in hundredths of a second
		v, _ := strconv.Atoi(f)
		ticks += time.Duration(v)
	}
	return ticks * 10 * time.Millisecond
}

// TestF18Patterns cancels, suspends and deletes an app whose patterns keep the processors busy with long texts, on
// two processes: none of its runs continues, no processor time is used for it, and nothing is written. Patterns
// beyond the bound are refused in the configuration.
func TestF18Patterns(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	var refused *responseError
	body := map[string]any{"name": "mallory", "config": hostileConfig(20, 100, 195)}
	if err := c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps", body, nil); !errors.As(err, &refused) || refused.status != http.StatusBadRequest ||
		!strings.Contains(refused.body, "patterns") || !strings.Contains(refused.body, "instructions") {
		t.Errorf("patterns beyond the bound are answered %v", err)
	}
	if refused == nil {
		c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodDelete, "/admin/apps/mallory", nil, nil))
	}
	c.createApp("mallory", hostileConfig(6, 50, 99))
	tenant := c.querySQL("SELECT tenant FROM app WHERE name = 'mallory'")[0][0].(string)
	count := func(query string) int64 { return c.querySQL("SELECT COUNT(*) FROM "+query, tenant)[0][0].(int64) }
	text := strings.Repeat("abcde", 2<<20/5)
	token := c.createToken("mallory", "eve")
	clients := make([]*client, len(c.nodes))
	for i, n := range c.nodes {
		clients[i] = &client{baseURL: n.baseURL, token: token, http: c.client}
	}
	agents := []string{"scripted", "guarded", "answering"}
	begin := func(many int) (ids []string) {
		t.Helper()
		for i := range many {
			got, err := clients[i%len(clients)].sendMessage(t.Context(), message{agent: agents[i%len(agents)], text: text, background: true})
			c.requireNoError(err)
			ids = append(ids, got.TaskID)
		}
		return ids
	}
	// idle checks that the app's runs have ended and that no process works for it any more.
	idle := func(when string) {
		t.Helper()
		took := c.waitWithin(2*time.Second, "no run of the app is at work: "+when, func() bool {
			return count("run WHERE state = 'running' AND tenant = $1") == 0
		})
		events, before := count("event WHERE tenant = $1"), time.Duration(0)
		for _, n := range c.nodes {
			before += n.processorTime()
		}
		const watched = 2 * time.Second
		time.Sleep(watched)
		used := -before
		for _, n := range c.nodes {
			used += n.processorTime()
		}
		reportf(t, "%s: at rest after %v, then %v of processor time in %v", when, took.Round(time.Millisecond), used, watched)
		if used > watched/3 {
			t.Errorf("%s: the processes went on working for %v of processor time in %v", when, used, watched)
		}
		if after := count("event WHERE tenant = $1"); after > events {
			t.Errorf("%s: the app's log grew from %d to %d events", when, events, after)
		}
	}
	refusedEverywhere := func(began time.Time) {
		t.Helper()
		for _, to := range clients {
			c.waitWithin(5*time.Second-time.Since(began), "every process refuses", func() bool {
				_, err := to.sendMessage(t.Context(), message{agent: "guarded", text: "hi"})
				return err != nil
			})
		}
	}

	for i, id := range begin(6) {
		_ = clients[i%2].cancelTask(t.Context(), agents[i%len(agents)], id) // a task that has ended cannot be cancelled
	}
	idle("cancelled")

	begin(8)
	began := time.Now()
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/mallory:suspend", map[string]any{}, nil))
	refusedEverywhere(began)
	idle("suspended")

	c.requireNoError(c.nodes[1].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/mallory:resume", map[string]any{}, nil))
	for _, to := range clients {
		c.waitWithin(setupTimeout, "every process answers again", func() bool {
			_, err := to.sendMessage(t.Context(), message{agent: "guarded", text: "hi"})
			return err == nil
		})
	}
	begin(8)
	began = time.Now()
	c.requireNoError(c.nodes[1].adminClient().requestJSON(t.Context(), http.MethodDelete, "/admin/apps/mallory", nil, nil))
	refusedEverywhere(began)
	idle("deleted")
	if got, err := c.nodes[0].sendMessage(t.Context(), message{text: "hi"}); err != nil || got.lastText() != "hi" {
		t.Errorf("the neighbour is answered %q, %v", got.lastText(), err)
	}
}
