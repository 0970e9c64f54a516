package faults_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/llm/llmtest"
)

// TestF13Vendor makes the model's server fail in every way. The task fails with a message that contains nothing of
// the vendor's text, or completes where a retry helps; no incomplete tool call is executed; memory is bounded.
func TestF13Vendor(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 1, args: []string{"--queue-max-retries", "1", "--queue-max-delay", "200ms"}})
	n := c.nodes[0]
	effect := `"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"record","arguments":"{\"url\":\"` + c.tools.URL + `/half\",\"method\":\"POST\"`
	call := deltaEvent(effect + `}"}}]`)
	silent := 2 * time.Minute
	for _, x := range []struct {
		name  string
		fault http.HandlerFunc
		state string
		calls int           // calls of the model, at least
		after time.Duration // the task ends no earlier
		long  bool
	}{
		// Two runs: three requests, then two, of which the last opens the circuit breaker.
		{"429", respondStatus(429, "1"), "failed", 5, 2 * time.Second, false},
		{"500", respondStatus(500, ""), "failed", 5, 500 * time.Millisecond, false},
		{"401", respondStatus(401, ""), "failed", 1, 0, false},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, "failed", 5, 0, false},
		{"garbage", respondStream("data: \x00\xff no JSON\n\n"), "failed", 1, 0, false},
		{"HTML", respondStream("<html>" + llmtest.Canary + "</html>"), "failed", 1, 0, false},
		{"half an answer", respondStream(deltaEvent(`"role":"assistant","content":"Hel"`)), "failed", 1, 0, false},
		{"half a call", respondStream(deltaEvent(effect + `"}}]`)), "failed", 1, 0, false},
		{"a call without end", respondStream(call), "failed", 1, 0, false},
		{"a line of 100 MB", respondLongLine, "failed", 1, 0, false},
		{"usage that is no number", respondStream(deltaEvent(`"role":"assistant","content":"Hello"`), finishEvents("stop", `{"prompt_tokens":NaN,"completion_tokens":1}`)), "failed", 1, 0, false},
		{"negative usage", respondStream(deltaEvent(`"role":"assistant","content":"Hello"`), finishEvents("stop", `{"prompt_tokens":-5,"completion_tokens":-1}`)), "completed", 1, 0, false},
		{"hang", hangForever, "failed", 1, 0, true},
		{"drip", respondComments, "failed", 1, 0, true},
	} {
		if x.long && !isFull {
			reportSkipped(t, "%s: the wait for a silent model is long; make faults does it", x.name)
			continue
		}
		// An app for each case, because repeated failures open the circuit breaker of an app's model.
		app := "v" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, x.name)
		c.createApp(app, c.appConfig())
		user := &client{baseURL: n.baseURL, token: c.createToken(app, "ana"), http: c.client}
		c.model.setFault(x.name, x.fault)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
		began := time.Now()
		got, err := user.sendMessage(ctx, message{agent: "modelled", text: x.name, background: true})
		if err == nil {
			if x.long {
				ctx, cancel = context.WithTimeout(t.Context(), silent)
			}
			id := got.TaskID
			got, err = user.waitSettled(ctx, "modelled", id)
			got.TaskID = id // a request that was cut off has no response
		}
		cancel()
		took := time.Since(began)
		if x.long && err != nil {
			// It waits as long as a thinking model may take; when cancelled, it ends at once.
			began := time.Now()
			c.requireNoError(user.cancelTask(t.Context(), "modelled", got.TaskID))
			c.waitWithin(5*time.Second, "the model is let go", func() bool { return n.readMetric("stoa_runs_inflight") == 0 })
			reportf(t, "%s: waits for more than %v; cancelled, it lets go after %v", x.name, silent, time.Since(began).Round(time.Millisecond))
			continue
		}
		c.requireNoError(err)
		if got.Status.State != x.state || c.model.countCalls(x.name) < x.calls || took < x.after {
			t.Errorf("%s: the task is %s (%q) after %d calls and %v", x.name, got.Status.State, got.lastText(), c.model.countCalls(x.name), took)
		}
		if text := got.lastText(); strings.Contains(text, llmtest.Canary) || text == "" {
			t.Errorf("%s: the task says %q", x.name, text)
		}
		reportf(t, "%s: %s after %v and %d calls: %s", x.name, got.Status.State, took.Round(10*time.Millisecond), c.model.countCalls(x.name), got.lastText())
	}
	c.checkRetryPauses(t)
	if got := c.tools.effectsNamed("half"); len(got) != 0 {
		t.Errorf("half a call had %d effects", len(got))
	}
	if strings.Contains(n.Output(), llmtest.Canary) {
		t.Error("the log holds the vendor's words")
	}
	if peak := n.readPeakMemory(); peak > 300<<10 {
		t.Errorf("the process has taken %d KiB of memory", peak)
	} else {
		reportf(t, "the process has taken %d MiB of memory at most", peak>>10)
	}
}

// checkRetryPauses requires callers whose model fails at the same moment to retry at different times: the second
// attempt half a second after the first and the third three quarters of a second after that, each with a jitter of
// half of it. Without jitter no pause would be shorter.
func (c *cluster) checkRetryPauses(t *testing.T) {
	t.Helper()
	const users = 12
	clients := make([]*client, users) // each of an app of its own, as above
	for i := range clients {
		app := "pause" + itoa(i)
		c.createApp(app, c.appConfig())
		clients[i] = &client{baseURL: c.nodes[0].baseURL, token: c.createToken(app, "ana"), http: c.client}
		c.model.setFault(app, respondStatus(http.StatusInternalServerError, ""))
	}
	runConcurrently(users, func(i int) {
		if _, err := clients[i].sendMessage(t.Context(), message{agent: "modelled", text: "pause" + itoa(i), background: true}); err != nil {
			t.Error(err)
		}
	})
	var second, third []time.Duration
	for i := range users {
		text := "pause" + itoa(i)
		c.waitWithin(setupTimeout, "the model is asked three times", func() bool { return c.model.countCalls(text) >= 3 })
		at := c.model.callTimes(text)
		second, third = append(second, at[1].Sub(at[0])), append(third, at[2].Sub(at[1]))
	}
	if slices.Min(second) >= 500*time.Millisecond && slices.Min(third) >= 750*time.Millisecond {
		t.Errorf("no request was sent earlier than after the usual pause: %v, %v", second, third)
	}
	reportf(t, "the second try came after %v to %v, the third after %v to %v more",
		durationQuantile(second, 0), durationQuantile(second, 1), durationQuantile(third, 0), durationQuantile(third, 1))
}

// readPeakMemory returns the peak memory of the process in KiB; 0 if the system does not report it.
func (n *node) readPeakMemory() int {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(n.Cmd.Process.Pid) + "/status")
	for line := range strings.Lines(string(raw)) {
		if remainder, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(remainder)[0])
			return kib
		}
	}
	return 0
}
