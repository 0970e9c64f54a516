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

// TestDrain stops a process in the middle of a call: the call is answered before the process ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		type end struct {
			task task
			err  error
		}
		answered := make(chan end, 1)
		go func() {
			got, err := n.send(t.Context(), message{text: "slow answer"})
			answered <- end{got, err}
		}()
		c.within(5*time.Second, "the call is at work", func() bool { return n.metric("stoa_runs_inflight") == 1 })
		if err := n.End(syscall.SIGTERM); err != nil {
			t.Errorf("the process ended with %v:\n%s", err, n.complaints())
		}
		if a := <-answered; a.err != nil || a.task.text() != "one two answer" {
			t.Errorf("the call was answered %q, %v", a.task.text(), a.err)
		}
	})
}

// TestF17Reload changes an app while its runs work: they go on as they began, also after their worker died, and what
// begins later is of the new revision. What is invalid changes nothing and says why.
func TestF17Reload(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	put := func(config string) error {
		return c.nodes[1].admin().ask(t.Context(), http.MethodPut, "/admin/apps/acme", map[string]any{"config": config}, nil)
	}
	held, repeated := c.tools.gates.close("held"), c.tools.gates.close("killed")
	first := c.live(c.nodes[0], message{text: "record held"})
	second := c.live(c.nodes[0], message{text: "repeat killed"})
	held.await(t)
	repeated.await(t)
	newer := strings.NewReplacer("recorded: ", "NEWER: ", "repeated: ", "NEWER: ").Replace(c.config())
	c.must(put(newer))
	c.within(5*time.Second, "every process has the new revision", func() bool {
		for i, n := range c.nodes {
			if got, err := n.send(t.Context(), message{text: "record probe" + itoa(i)}); err != nil || !strings.HasPrefix(got.text(), "NEWER") {
				return false
			}
		}
		return true
	})
	held.release()
	if got := c.restsAs(c.nodes[1], "", first, "completed", rescue); !strings.Contains(got.text(), "recorded: ") {
		t.Errorf("a run that began before says %q", got.text())
	}
	c.nodes[0].kill()
	repeated.release()
	if got := c.restsAs(c.nodes[1], "", second, "completed", rescue); !strings.Contains(got.text(), "repeated: ") {
		t.Errorf("a run that began before and was rescued says %q", got.text())
	}
	err := put("agnets: {}\n")
	var r *refusal
	if !errors.As(err, &r) || r.status != http.StatusBadRequest || !strings.Contains(r.body, "agnets") {
		t.Errorf("an invalid configuration is answered %v", err)
	}
	got, err := c.nodes[1].send(t.Context(), message{text: "record last"})
	c.must(err)
	if !strings.HasPrefix(got.text(), "NEWER") {
		t.Errorf("after an invalid configuration the agent says %q", got.text())
	}
}

// TestF17File changes the configuration file under a process while a run of it works: the run goes on as it began, what begins later
// is of the new file, and what is invalid is told in the log and changes nothing.
func TestF17File(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	write := func(config string) {
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n")
	c := up(t, setup{sqlite: true, args: []string{"--config", file, "--watch"}})
	n := c.nodes[0]
	n.token = c.mint("default", "ana")
	probes := 0
	says := func(begins string) bool {
		probes++
		got, err := n.send(t.Context(), message{text: "record probe" + itoa(probes)})
		return err == nil && strings.HasPrefix(got.text(), begins)
	}
	write(c.config())
	c.within(5*time.Second, "the file is read", func() bool { return says("recorded: ") })
	held := c.tools.gates.close("held")
	id := c.live(n, message{text: "record held"})
	held.await(t)
	write(strings.ReplaceAll(c.config(), "recorded: ", "NEWER: "))
	c.within(5*time.Second, "the changed file is read", func() bool { return says("NEWER: ") })
	write("agnets: {}\n")
	c.within(5*time.Second, "what is wrong with the file is told", func() bool { return strings.Contains(n.Output(), "agnets") })
	if !says("NEWER: ") {
		t.Error("an invalid file has replaced the one before")
	}
	held.release()
	if got := c.restsAs(n, "", id, "completed", rescue); !strings.Contains(got.text(), "recorded: ") {
		t.Errorf("a run that began before says %q", got.text())
	}
}

// TestF18Suspend suspends an app with calls, streams and schedules under way, on every process, and then deletes it: whoever
// waits and whoever comes is refused in time, nothing is written once that is so, no tick starts a task, nobody is called back, and
// no row stays. Its neighbour has the same schedules, and at each hour that strikes shows that they would have started something.
func TestF18Suspend(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	timed := c.config() + "  hourly: {llm: script, trigger: {type: schedule, cron: \"0 * * * *\", input: hello tick}}\n"
	for i := range 8 {
		timed += fmt.Sprintf("  half%d: {llm: script, trigger: {type: schedule, cron: \"30 * * * *\", input: hello tick}}\n", i)
	}
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPut, "/admin/apps/acme", map[string]any{"config": timed}, nil))
	c.app("globex", timed)
	neighbour := &client{base: c.nodes[0].base, token: c.mint("globex", "bob"), http: c.client}
	_, err := neighbour.send(t.Context(), message{text: "hi"})
	c.must(err)
	tenants := map[string]string{}
	for _, row := range c.sql("SELECT name, tenant FROM app") {
		tenants[row[0].(string)] = row[1].(string)
	}
	tenant := tenants["acme"]
	count := func(query, app string) int64 { return c.sql("SELECT COUNT(*) FROM "+query, tenants[app])[0][0].(int64) }
	known := func(app string) bool { return count("schedule WHERE tenant = $1", app) == 9 }
	ticks := func(app string) int64 { return count("task WHERE agent = 'hourly' AND tenant = $1", app) }
	c.within(15*time.Second, "the schedules are known", func() bool { return known("acme") && known("globex") })

	// strike has the next hour begin, and wants both apps to have had as many ticks as that.
	strike := func(acme, globex int64) {
		t.Helper()
		c.calm()
		c.setTime(c.time().Truncate(time.Hour).Add(time.Hour))
		c.within(30*time.Second, "the neighbour's tick is a task", func() bool { return ticks("globex") == globex })
		time.Sleep(stale) // each process looks twice and more
		c.calm()
		if n := ticks("acme"); n != acme {
			t.Errorf("the app has had %d ticks, want %d", n, acme)
		}
	}
	// due makes schedules due that have started nothing in the last hour.
	due := func() {
		t.Helper()
		at := c.time().Truncate(time.Hour).Add(-30 * time.Minute)
		c.sql("UPDATE schedule SET next_at = $1 WHERE tenant = $2 AND agent LIKE 'half%' RETURNING agent", at.UnixMicro(), tenant)
	}
	begin := func() chan error {
		ended := make(chan error, 4)
		for _, n := range c.nodes {
			go func() {
				_, err := n.send(t.Context(), message{text: "record late"})
				ended <- err
			}()
			go func() {
				m := message{text: "record late"}
				ended <- n.stream(t.Context(), m.path(), call("message:stream", m.params()), func(event) bool { return true })
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
				t.Error("somebody still waits")
			}
		}
		for _, n := range c.nodes {
			c.within(5*time.Second-time.Since(began), "every process refuses", func() bool {
				_, err := n.send(t.Context(), message{text: "hi"})
				return err != nil
			})
		}
		say(t, "refused everywhere after %v", time.Since(began).Round(time.Millisecond))
	}

	// owe has a callback under way whose receiver has not answered yet: it would be sent again.
	owe := func(word string) *gate {
		t.Helper()
		gate := c.tools.gates.close("callback/" + word)
		c.callBack(c.nodes[0], "hello "+word, word)
		gate.await(t)
		return gate
	}
	calledBack := func(word string, times int) bool { return len(c.tools.of("callback/"+word)) == times }

	strike(1, 1)
	gate := c.tools.gates.close("late")
	ended := begin()
	for range 4 {
		gate.await(t)
	}
	due()
	owed := owe("suspended")
	began := time.Now()
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPost, "/admin/apps/acme:suspend", map[string]any{}, nil))
	refusals(ended, began)
	c.within(5*time.Second-time.Since(began), "no run of the app is at work and no tick of it is due", func() bool {
		return count("run WHERE state = 'running' AND tenant = $1", "acme")+count("schedule WHERE tenant = $1", "acme") == 0
	})
	before := count("event WHERE tenant = $1", "acme")
	gate.release()
	owed.release()
	strike(1, 2)
	if !calledBack("suspended", 1) {
		t.Errorf("a suspended app calls back: %v", c.tools.of("callback/suspended"))
	}
	if after := count("event WHERE tenant = $1", "acme"); after != before {
		t.Errorf("a suspended app's log grew from %v to %v events", before, after)
	}
	if n := count("schedule WHERE tenant = $1", "acme"); n != 0 {
		t.Errorf("a suspended app has %d schedules", n)
	}
	c.must(c.nodes[1].admin().ask(t.Context(), http.MethodPost, "/admin/apps/acme:resume", map[string]any{}, nil))
	for _, n := range c.nodes {
		c.within(5*time.Second, "every process answers again", func() bool {
			_, err := n.send(t.Context(), message{text: "hi"})
			return err == nil
		})
	}
	c.within(15*time.Second, "the schedules are known again", func() bool { return known("acme") })
	c.within(15*time.Second, "who is owed an answer is called back again", func() bool { return calledBack("suspended", 2) })
	if told := c.tools.of("callback/suspended"); told[0].key != told[1].key || told[0].key == "" {
		t.Errorf("the same is told under the ids %q and %q", told[0].key, told[1].key)
	}
	strike(2, 3) // the one that it was suspended over is not made up for

	gate = c.tools.gates.close("late")
	ended = begin()
	for range 4 {
		gate.await(t)
	}
	due()
	owed = owe("deleted")
	began = time.Now()
	a, err := c.nodes[1].admin().do(t.Context(), http.MethodDelete, "/admin/apps/acme", nil)
	if err != nil || a.status != http.StatusNoContent {
		t.Fatalf("delete: %d %s (%v)", a.status, a.body, err)
	}
	refusals(ended, began)
	gate.release()
	owed.release()
	strike(0, 4)
	if !calledBack("deleted", 1) || !calledBack("suspended", 2) {
		t.Errorf("a deleted app calls back: %v, %v", c.tools.of("callback/deleted"), c.tools.of("callback/suspended"))
	}
	// What a call that was under way still wrote goes with the next look for such rows, which is every half minute.
	c.within(45*time.Second, "no row of the deleted app is left", func() bool {
		left := int64(0)
		for _, table := range c.sql(`SELECT table_name FROM information_schema.columns WHERE column_name = 'tenant' AND table_schema = 'public'`) {
			left += count(table[0].(string)+" WHERE tenant = $1", "acme")
		}
		return left == 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := neighbour.send(ctx, message{text: "hi"}); err != nil {
		t.Errorf("the neighbour is answered %v", err)
	}
}
