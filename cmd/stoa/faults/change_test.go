package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDrain stops a process in the middle of a call: the call is answered before the process ends. Its lease is not at stake.
func TestDrain(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		type end struct {
			task task
			err  error
		}
		answered := make(chan end, 1)
		go func() {
			got, err := n.sendMessage(t.Context(), message{text: "slow answer"})
			answered <- end{got, err}
		}()
		c.waitWithin(setupTimeout, "the call is at work", func() bool { return n.readMetric("stoa_runs_inflight") == 1 })
		if err := n.SignalAndWait(syscall.SIGTERM); err != nil {
			t.Errorf("the process ended with %v:\n%s", err, n.filteredOutput())
		}
		if a := <-answered; a.err != nil || a.task.lastText() != "one two answer" {
			t.Errorf("the call was answered %q, %v", a.task.lastText(), a.err)
		}
	}, longStaleArgs...)
}

// TestF17Reload changes an app while its runs execute: they continue with their revision, also after their worker
// died, and later turns use the new revision. An invalid configuration changes nothing and is refused with the
// reason.
func TestF17Reload(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	setConfig := func(config string) error {
		return c.nodes[1].adminClient().requestJSON(t.Context(), http.MethodPatch, "/admin/apps/acme", map[string]any{"config": config}, nil)
	}
	blocked, repeated := c.tools.barriers.blockRequests("held"), c.tools.barriers.blockRequests("killed")
	first := c.startTaskAt(c.nodes[0], message{text: "record held"})
	second := c.startTaskAt(c.nodes[0], message{text: "repeat killed"})
	blocked.waitForRequest(t)
	repeated.waitForRequest(t)
	newer := strings.NewReplacer("recorded: ", "NEWER: ", "repeated: ", "NEWER: ").Replace(c.appConfig())
	c.requireNoError(setConfig(newer))
	c.waitWithin(5*time.Second, "every process has the new revision", func() bool {
		for i, n := range c.nodes {
			if got, err := n.sendMessage(t.Context(), message{text: "record probe" + itoa(i)}); err != nil || !strings.HasPrefix(got.lastText(), "NEWER") {
				return false
			}
		}
		return true
	})
	blocked.releaseRequests()
	if got := c.waitForState(c.nodes[1], "", first, "completed", rescueTimeout); !strings.Contains(got.lastText(), "recorded: ") {
		t.Errorf("a run that began before says %q", got.lastText())
	}
	c.nodes[0].killProcess()
	repeated.releaseRequests()
	if got := c.waitForState(c.nodes[1], "", second, "completed", rescueTimeout); !strings.Contains(got.lastText(), "repeated: ") {
		t.Errorf("a run that began before and was rescued says %q", got.lastText())
	}
	err := setConfig("agnets: {}\n")
	var r *responseError
	if !errors.As(err, &r) || r.status != http.StatusBadRequest || !strings.Contains(r.body, "agnets") {
		t.Errorf("an invalid configuration is answered %v", err)
	}
	got, err := c.nodes[1].sendMessage(t.Context(), message{text: "record last"})
	c.requireNoError(err)
	if !strings.HasPrefix(got.lastText(), "NEWER") {
		t.Errorf("after an invalid configuration the agent says %q", got.lastText())
	}
}

// TestF17File changes the configuration file while a run executes: the run continues with its configuration, later
// turns use the new file, and an invalid file is logged and changes nothing.
func TestF17File(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	write := func(config string) {
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n")
	c := startCluster(t, clusterOptions{sqlite: true, args: []string{"--config", file, "--watch"}})
	n := c.nodes[0]
	n.token = c.createToken("default", "ana")
	probes := 0
	hasPrefix := func(begins string) bool {
		probes++
		got, err := n.sendMessage(t.Context(), message{text: "record probe" + itoa(probes)})
		return err == nil && strings.HasPrefix(got.lastText(), begins)
	}
	write(c.appConfig())
	c.waitWithin(setupTimeout, "the file is read", func() bool { return hasPrefix("recorded: ") })
	blocked := c.tools.barriers.blockRequests("held")
	id := c.startTaskAt(n, message{text: "record held"})
	blocked.waitForRequest(t)
	write(strings.ReplaceAll(c.appConfig(), "recorded: ", "NEWER: "))
	c.waitWithin(setupTimeout, "the changed file is read", func() bool { return hasPrefix("NEWER: ") })
	write("agnets: {}\n")
	c.waitWithin(setupTimeout, "what is wrong with the file is told", func() bool { return strings.Contains(n.Output(), "agnets") })
	if !hasPrefix("NEWER: ") {
		t.Error("an invalid file has replaced the one before")
	}
	blocked.releaseRequests()
	if got := c.waitForState(n, "", id, "completed", rescueTimeout); !strings.Contains(got.lastText(), "recorded: ") {
		t.Errorf("a run that began before says %q", got.lastText())
	}
}

// TestF18Suspend suspends an app with calls, streams and schedules in progress, on every process, and then deletes
// it: waiting and new callers are refused in time, nothing is written from then on, no tick starts a task, no
// callback is sent, and no row remains. Another app with the same schedules shows, at each hour, that they would have
// started tasks.
func TestF18Suspend(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	timed := c.appConfig() + "  hourly: {llm: script, trigger: {type: schedule, cron: \"0 * * * *\", input: hello tick}}\n"
	for i := range 8 {
		timed += fmt.Sprintf("  half%d: {llm: script, trigger: {type: schedule, cron: \"30 * * * *\", input: hello tick}}\n", i)
	}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPatch, "/admin/apps/acme", map[string]any{"config": timed}, nil))
	c.createApp("globex", timed)
	neighbour := &client{baseURL: c.nodes[0].baseURL, token: c.createToken("globex", "bob"), http: c.client}
	_, err := neighbour.sendMessage(t.Context(), message{text: "hi"})
	c.requireNoError(err)
	tenants := map[string]string{}
	for _, row := range c.querySQL("SELECT name, tenant FROM app") {
		tenants[row[0].(string)] = row[1].(string)
	}
	tenant := tenants["acme"]
	count := func(query, app string) int64 {
		return c.querySQL("SELECT COUNT(*) FROM "+query, tenants[app])[0][0].(int64)
	}
	known := func(app string) bool { return count("schedule WHERE tenant = $1", app) == 9 }
	ticks := func(app string) int64 { return count("task WHERE agent = 'hourly' AND tenant = $1", app) }
	c.waitWithin(setupTimeout, "the schedules are known", func() bool { return known("acme") && known("globex") })

	// strike makes the next hour begin and checks the number of ticks of both apps.
	strike := func(acme, globex int64) {
		t.Helper()
		c.waitUntilIdle()
		c.setDatabaseTime(c.databaseTime().Truncate(time.Hour).Add(time.Hour))
		c.waitWithin(setupTimeout, "the neighbour's tick is a task", func() bool { return ticks("globex") == globex })
		time.Sleep(staleThreshold) // each process polls at least twice
		c.waitUntilIdle()
		if n := ticks("acme"); n != acme {
			t.Errorf("the app has had %d ticks, want %d", n, acme)
		}
	}
	// due makes schedules due that have started nothing in the last hour.
	due := func() {
		t.Helper()
		at := c.databaseTime().Truncate(time.Hour).Add(-30 * time.Minute)
		c.querySQL("UPDATE schedule SET next_at = $1 WHERE tenant = $2 AND agent LIKE 'half%' RETURNING agent", at.UnixMicro(), tenant)
	}
	begin := func() chan error {
		ended := make(chan error, 4)
		for _, n := range c.nodes {
			go func() {
				_, err := n.sendMessage(t.Context(), message{text: "record late"})
				ended <- err
			}()
			go func() {
				m := message{text: "record late"}
				ended <- n.streamEvents(t.Context(), m.agentPath(), rpcCall("message:stream", m.rpcParams()), func(event) bool { return true })
			}()
		}
		return ended
	}
	refusals := func(ended chan error, began time.Time) {
		for range 4 {
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a call of an app that is no more was answered")
				}
			case <-time.After(5*time.Second - time.Since(began)):
				t.Error("a subscriber still waits")
			}
		}
		for _, n := range c.nodes {
			c.waitWithin(5*time.Second-time.Since(began), "every process refuses", func() bool {
				_, err := n.sendMessage(t.Context(), message{text: "hi"})
				return err != nil
			})
		}
		reportf(t, "refused everywhere after %v", time.Since(began).Round(time.Millisecond))
	}

	// startCallback begins a callback whose receiver has not answered yet, so that it would be sent again.
	startCallback := func(word string) *requestBarrier {
		t.Helper()
		barrier := c.tools.barriers.blockRequests("callback/" + word)
		c.deliverWithCallback(c.nodes[0], "hello "+word, word)
		barrier.waitForRequest(t)
		return barrier
	}
	calledBack := func(word string, times int) bool { return len(c.tools.effectsNamed("callback/"+word)) == times }

	strike(1, 1)
	barrier := c.tools.barriers.blockRequests("late")
	ended := begin()
	for range 4 {
		barrier.waitForRequest(t)
	}
	due()
	callback := startCallback("suspended")
	began := time.Now()
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/acme:suspend", map[string]any{}, nil))
	refusals(ended, began)
	c.waitWithin(5*time.Second-time.Since(began), "no run of the app is at work and no tick of it is due", func() bool {
		return count("run WHERE state = 'running' AND tenant = $1", "acme")+count("schedule WHERE tenant = $1", "acme") == 0
	})
	before := count("event WHERE tenant = $1", "acme")
	barrier.releaseRequests()
	callback.releaseRequests()
	strike(1, 2)
	if !calledBack("suspended", 1) {
		t.Errorf("a suspended app calls back: %v", c.tools.effectsNamed("callback/suspended"))
	}
	if after := count("event WHERE tenant = $1", "acme"); after != before {
		t.Errorf("a suspended app's log grew from %v to %v events", before, after)
	}
	if n := count("schedule WHERE tenant = $1", "acme"); n != 0 {
		t.Errorf("a suspended app has %d schedules", n)
	}
	c.requireNoError(c.nodes[1].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/acme:resume", map[string]any{}, nil))
	for _, n := range c.nodes {
		c.waitWithin(setupTimeout, "every process answers again", func() bool {
			_, err := n.sendMessage(t.Context(), message{text: "hi"})
			return err == nil
		})
	}
	c.waitWithin(setupTimeout, "the schedules are known again", func() bool { return known("acme") })
	c.waitWithin(setupTimeout, "who is owed an answer is called back again", func() bool { return calledBack("suspended", 2) })
	if reported := c.tools.effectsNamed("callback/suspended"); reported[0].key != reported[1].key || reported[0].key == "" {
		t.Errorf("the same event has the ids %q and %q", reported[0].key, reported[1].key)
	}
	strike(2, 3) // the tick missed during the suspension is not started later

	barrier = c.tools.barriers.blockRequests("late")
	ended = begin()
	for range 4 {
		barrier.waitForRequest(t)
	}
	due()
	callback = startCallback("deleted")
	began = time.Now()
	a, err := c.nodes[1].adminClient().doRequest(t.Context(), http.MethodDelete, "/admin/apps/acme", nil)
	if err != nil || a.status != http.StatusNoContent {
		t.Fatalf("delete: %d %s (%v)", a.status, a.body, err)
	}
	refusals(ended, began)
	barrier.releaseRequests()
	callback.releaseRequests()
	strike(0, 4)
	if !calledBack("deleted", 1) || !calledBack("suspended", 2) {
		t.Errorf("a deleted app calls back: %v, %v", c.tools.effectsNamed("callback/deleted"), c.tools.effectsNamed("callback/suspended"))
	}
	// Rows that a call in progress still wrote are deleted by the next sweep of such rows, every 30 seconds.
	c.waitWithin(45*time.Second, "no row of the deleted app is left", func() bool {
		left := int64(0)
		for _, table := range c.querySQL(`SELECT table_name FROM information_schema.columns WHERE column_name = 'tenant' AND table_schema = 'public'`) {
			left += count(table[0].(string)+" WHERE tenant = $1", "acme")
		}
		return left == 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := neighbour.sendMessage(ctx, message{text: "hi"}); err != nil {
		t.Errorf("the neighbour is answered %v", err)
	}
}
