package faults_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rescueTimeout is how long it may take until another worker continues a task of a dead one: the stale threshold and
// ten seconds.
const rescueTimeout = staleThreshold + 10*time.Second

// forEachEngine runs f on PostgreSQL with two processes with args, and on SQLite with one, whose next start need not wait
// until the previous process counts as dead: the file's lock proves that it is.
func forEachEngine(t *testing.T, f func(t *testing.T, c *cluster), args ...string) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, startCluster(t, clusterOptions{nodes: 2, args: args})) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, startCluster(t, clusterOptions{sqlite: true, args: longStaleArgs}))
	})
}

// survivingNode returns the node that continues after nodes[0] was killed: the other process, or on SQLite the same
// one restarted.
func (c *cluster) survivingNode() *node {
	c.Helper()
	if len(c.nodes) > 1 {
		return c.nodes[1]
	}
	c.nodes[0].restartProcess()
	return c.nodes[0]
}

// sendBackground sends a message to a process that is about to fail. It returns the id of the task.
func (c *cluster) sendBackground(n *node, m message) string {
	c.Helper()
	m.background = true
	t, err := n.sendMessage(c.Context(), m)
	c.requireNoError(err)
	return t.TaskID
}

// startTaskAt sends a blocking message whose response will be lost, and returns the id of the task. Unlike
// sendBackground it makes the run start at that process.
func (c *cluster) startTaskAt(n *node, m message) string {
	c.Helper()
	ids, over := make(chan string, 1), make(chan error, 1)
	go func() {
		over <- n.streamEvents(c.Context(), m.agentPath(), rpcCall("message:stream", m.rpcParams()), func(ev event) bool {
			select {
			case ids <- ev.TaskID:
			default:
			}
			return true
		})
	}()
	select {
	case id := <-ids:
		return id
	case err := <-over:
		c.Fatalf("no task comes of %q: %v", m.text, err)
	case <-time.After(time.Minute):
		c.Fatalf("no task comes of %q", m.text)
	}
	return ""
}

// TestF1Kill kills a worker during a model call. The task ends in time and once, and the model is called at most once
// more.
func TestF1Kill(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, c *cluster) {
		blocked := c.model.barriers.blockRequests("hello")
		m := message{agent: "modelled", text: "hello", id: "m1"}
		id := c.startTaskAt(c.nodes[0], m)
		blocked.waitForRequest(t)
		c.nodes[0].killProcess()
		began := time.Now()
		blocked.releaseRequests()
		n := c.survivingNode()
		got := c.waitForState(n, "modelled", id, "completed", rescueTimeout)
		took := time.Since(began)
		if got.lastText() != "Hello to you." || c.model.countCalls("hello") != 2 {
			t.Errorf("the task says %q after %d model calls, want 2", got.lastText(), c.model.countCalls("hello"))
		}
		reportf(t, "the task ended %v after the kill", took.Round(time.Millisecond))
		// The client whose connection was cut sends the same message again and gets the same task.
		again, err := n.sendMessage(t.Context(), m)
		c.requireNoError(err)
		if again.TaskID != id {
			t.Errorf("the same message opened task %s, want %s", again.TaskID, id)
		}
		c.checkOneEnd(n, "modelled", id)
	})
}

// restorePoint is a checkpoint that a task can be restored to.
type restorePoint struct {
	ID     int64
	Reason string
	Step   int
	At     string
}

// TestF1RestorePoints kills the worker of one task twice: during the first model call, and right after the
// after_tools and before_llm points that follow the tool's result. These are on the log by then and stay unchanged.
// The next process continues after them: it repeats only the model call that was cut off, before which it records
// another point.
func TestF1RestorePoints(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, c *cluster) {
		c.createApp("restorable", c.appConfig()+"storage: {checkpoint: {enabled: true, after_tools: true, before_llm: true}}\n")
		token := c.createToken("restorable", "ana")
		for _, n := range c.nodes {
			n.token = token
		}
		stored := func(n *node, id string) (points []restorePoint, names []string) {
			t.Helper()
			var list struct{ Checkpoints []restorePoint }
			c.requireNoError(n.requestJSON(t.Context(), http.MethodGet, "/tasks/"+id+"/checkpoints", nil, &list))
			for _, p := range list.Checkpoints {
				names = append(names, p.Reason+" "+itoa(p.Step))
			}
			return list.Checkpoints, names
		}

		thinking, acting := c.model.barriers.blockRequests("once"), c.tools.barriers.blockRequests("once")
		id := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "once"})
		thinking.waitForRequest(t)
		c.nodes[0].killProcess()
		thinking.releaseRequests()
		n := c.survivingNode()

		acting.waitForRequest(t)
		thinking = c.model.barriers.blockRequests("once")
		acting.releaseRequests()
		thinking.waitForRequest(t)
		before, names := stored(n, id)
		want := []string{"start 0", "before_llm 0", "after_tools 1", "before_llm 1"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("before the second kill (-want +got):\n%s", diff)
		}
		n.killProcess()
		thinking.releaseRequests()
		last := c.nodes[0]
		last.restartProcess()

		c.waitForState(last, "modelled", id, "completed", rescueTimeout)
		after, names := stored(last, id)
		if diff := cmp.Diff(append(want, "before_llm 1"), names); diff != "" {
			t.Errorf("at the end (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, after[:min(len(before), len(after))]); diff != "" {
			t.Errorf("the points of the process that was killed are others now (-before +after):\n%s", diff)
		}
		if requested, effects := c.model.countCalls("once"), len(c.tools.effectsNamed("once")); requested != 4 || effects != 1 {
			t.Errorf("the model was asked %d times, want 4: each of two calls and once more after its kill; the tool had %d effects, want 1", requested, effects)
		}
		c.checkOneEnd(last, "modelled", id)
	})
}

// checkOneEnd requires a task's log to have one terminal event, the last.
func (c *cluster) checkOneEnd(n *node, agent, id string) {
	c.Helper()
	log, err := n.readLog(c.Context(), agent, id)
	c.requireNoError(err)
	ends := 0
	for _, ev := range log {
		if ev.isTerminal() {
			ends++
		}
	}
	if ends != 1 || !log[len(log)-1].isTerminal() {
		c.Errorf("the log of task %s has %d ends", id, ends)
	}
}

// TestF2Kill kills a worker during a tool call whose effect has taken place. A call that is not idempotent is not
// repeated, and a human is asked; an idempotent one is repeated.
func TestF2Kill(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, c *cluster) {
		once, again := c.tools.barriers.blockRequests("once"), c.tools.barriers.blockRequests("again")
		first := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "once"})
		second := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "again"})
		once.waitForRequest(t)
		again.waitForRequest(t)
		c.nodes[0].killProcess()
		once.releaseRequests()
		again.releaseRequests()
		n := c.survivingNode()
		c.waitForState(n, "modelled", second, "completed", rescueTimeout)
		requested := c.waitForState(n, "modelled", first, "input_required", rescueTimeout)
		if got := c.tools.effectsNamed("again"); len(got) != 2 || got[0].key != got[1].key {
			t.Errorf("the call that may be repeated had the effects %v, want two with one key", got)
		}
		waiting, err := n.listApprovals(t.Context(), requested)
		c.requireNoError(err)
		if len(waiting) != 1 || waiting[0].Kind != "rerun" {
			t.Fatalf("what waits is %+v, want the call whose outcome is unknown", waiting)
		}
		c.requireNoError(n.decideCall(t.Context(), "reject", first, waiting[0].CallID))
		c.waitForState(n, "modelled", first, "rejected", rescueTimeout)
		if got := c.tools.effectsNamed("once"); len(got) != 1 {
			t.Errorf("the call that may not be repeated had %d effects", len(got))
		}
		c.checkOneEnd(n, "modelled", first)
		c.checkOneEnd(n, "modelled", second)
	})
}

// TestF3Commit kills a process around the commits of ten messages: when the requests to the database are lost, when
// its responses are lost, and when the clients have just received their acknowledgements. Acknowledged messages are
// durable, others are absent or complete, and each message that is sent again is one task with one effect.
func TestF3Commit(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	n, other := c.nodes[0], c.nodes[1]
	h := &history{}
	written := func(like string) int64 {
		return c.querySQL("SELECT COUNT(*) FROM sent WHERE message_id LIKE $1", like+"%")[0][0].(int64)
	}
	// Without its lock_timeout a group that waits is committed for certain once the lock is free.
	c.querySQL(`CREATE FUNCTION held() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
		PERFORM set_config('lock_timeout', '0', true); PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$`)
	c.querySQL(`CREATE TRIGGER held BEFORE INSERT ON sent FOR EACH ROW EXECUTE FUNCTION held()`)
	for _, x := range []struct {
		name  string
		state linkState
	}{{"before", linkBlackHole}, {"amid", linkHalfOpen}, {"after", linkUp}} {
		messages := make([]message, 10)
		for i := range messages {
			messages[i] = message{text: "record " + x.name + itoa(i), id: x.name + itoa(i), background: true}
		}
		free := func() {}
		if x.name == "amid" {
			free = c.acquireLock("SELECT pg_advisory_xact_lock(7)")
		} else {
			n.postgresProxy.setState(x.state)
		}
		var acknowledged sync.Map
		var all sync.WaitGroup
		for _, m := range messages {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if got, err := n.sendMessage(ctx, m); err == nil {
					acknowledged.Store(m.id, got.TaskID)
				}
			})
		}
		switch x.name {
		case "before":
			time.Sleep(200 * time.Millisecond)
		case "amid":
			c.waitForLockWaiter()
			n.postgresProxy.setState(x.state)
			free()
			c.waitWithin(setupTimeout, "a commit has taken effect", func() bool { return written(x.name) > 0 })
		case "after":
			all.Wait()
		}
		n.killProcess()
		all.Wait()
		there, reported := written(x.name), 0
		acknowledged.Range(func(any, any) bool { reported++; return true })
		reportf(t, "%s: of 10 messages %d were acknowledged, %d are there", x.name, reported, there)
		if x.name == "before" && there != 0 || x.name == "after" && reported != 10 || int64(reported) > there {
			t.Errorf("%s: of 10 messages %d were acknowledged, %d are there", x.name, reported, there)
		}
		n.postgresProxy.setState(linkUp)
		n.restartProcess()
		runConcurrently(len(messages), func(i int) {
			m := messages[i]
			m.background = false
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := other.sendMessage(ctx, m)
			if err != nil {
				t.Errorf("%s: the message sent again is answered %v", m.id, err)
				return
			}
			if id, ok := acknowledged.Load(m.id); ok && id != got.TaskID {
				t.Errorf("%s: the message sent again is task %s, it was acknowledged as %v", m.id, got.TaskID, id)
			}
			h.addMessage(m, got.TaskID)
		})
		if n := written(x.name); n != int64(len(messages)) {
			t.Errorf("%s: 10 messages have %d tasks", x.name, n)
		}
	}
	c.checkHistory(h, other, rescueTimeout)
}

// TestF4Stop stops a worker for longer than its lease and continues it: in a model call, and in a tool call. Another
// worker has finished its tasks by then, and the continued one changes nothing.
func TestF4Stop(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	hello, again := c.model.barriers.blockRequests("hello"), c.tools.barriers.blockRequests("again")
	thinking := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "hello"})
	acting := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "again"})
	hello.waitForRequest(t)
	again.waitForRequest(t)
	c.nodes[0].freezeProcess()
	hello.releaseRequests()
	again.releaseRequests()
	c.waitForState(c.nodes[1], "modelled", thinking, "completed", rescueTimeout)
	c.waitForState(c.nodes[1], "modelled", acting, "completed", rescueTimeout)
	before := c.querySQL("SELECT task, seq, body FROM event ORDER BY task, seq")
	calls, effects := c.model.countCalls("hello")+c.model.countCalls("again"), len(c.tools.effectsNamed("again"))
	c.nodes[0].sendSignal(syscall.SIGCONT)
	c.waitWithin(setupTimeout, "the woken process serves again", func() bool {
		_, err := c.nodes[0].getTask(t.Context(), "modelled", thinking)
		return err == nil
	})
	time.Sleep(staleThreshold)
	after := c.querySQL("SELECT task, seq, body FROM event ORDER BY task, seq")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the log before and after the worker woke (-before +after):\n%s", diff)
	}
	if n := c.model.countCalls("hello") + c.model.countCalls("again"); n != calls {
		t.Errorf("the woken worker asked the model %d times", n-calls)
	}
	if n := len(c.tools.effectsNamed("again")); n != effects {
		t.Errorf("the woken worker ran the tool %d times", n-effects)
	}
	got, err := c.nodes[0].sendMessage(t.Context(), message{text: "hi"})
	c.requireNoError(err)
	if got.lastText() != "hi" {
		t.Errorf("the woken process says %q", got.lastText())
	}
}

// TestF20Poison runs a task that kills every worker that takes it. It ends after its attempts, and other tasks are
// not affected.
func TestF20Poison(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2, args: []string{"--queue-max-retries", "2", "--queue-workers", "1"}})
	blocked := c.model.barriers.blockRequests("poison")
	id := c.startTaskAt(c.nodes[0], message{agent: "modelled", text: "poison"})
	h := &history{}
	for kill := range 3 {
		blocked.waitForRequest(t)
		for i := range 4 {
			m := message{text: "hello neighbour" + itoa(4*kill+i), id: "n" + itoa(4*kill+i)}
			got, err := c.nodes[1].sendMessage(t.Context(), m)
			c.requireNoError(err)
			h.addMessage(m, got.TaskID)
		}
		// It is not visible from outside which of the two has the task: the one that survives takes it next.
		for i, n := range c.nodes {
			if n.readMetric("stoa_runs_inflight") > 0 {
				n.killProcess()
				n.restartProcess()
				break
			} else if i == 1 {
				t.Fatal("no worker has the task")
			}
		}
	}
	got := c.waitForState(c.nodes[1], "modelled", id, "failed", rescueTimeout)
	if n := c.model.countCalls("poison"); n != 3 {
		t.Errorf("the task was tried %d times, want 3", n)
	}
	if !strings.Contains(got.lastText(), "internal error") && !strings.Contains(got.lastText(), "attempts") {
		t.Errorf("the task says %q", got.lastText())
	}
	var dead struct {
		Runs []struct {
			TaskID   string `json:"task_id"`
			Attempts int
		}
	}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodGet, "/admin/queue/dead", nil, &dead))
	if len(dead.Runs) != 1 || dead.Runs[0].TaskID != id || dead.Runs[0].Attempts != 3 {
		t.Errorf("the dead letters are %+v, want the task's after 3 attempts", dead.Runs)
	}
	c.checkHistory(h, c.nodes[1], rescueTimeout)
	c.checkOneEnd(c.nodes[1], "modelled", id)
}
