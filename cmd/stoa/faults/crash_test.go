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

// rescue is how long a task of a dead worker may take to go on elsewhere: the stale threshold and ten seconds.
const rescue = stale + 10*time.Second

// engines runs f on PostgreSQL with two processes, and on SQLite with one, whose next start is not to wait until the last one
// counts as dead: the file's lock says that it is.
func engines(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, up(t, setup{nodes: 2})) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, up(t, setup{sqlite: true, args: unhurried})) })
}

// survivor returns who goes on after nodes[0] was killed: the other process, or on SQLite the same one anew.
func (c *cluster) survivor() *node {
	c.Helper()
	if len(c.nodes) > 1 {
		return c.nodes[1]
	}
	c.nodes[0].restart()
	return c.nodes[0]
}

// begin sends a message to a process that is about to be broken. It returns the id of the task.
func (c *cluster) begin(n *node, m message) string {
	c.Helper()
	m.background = true
	t, err := n.send(c.Context(), m)
	c.must(err)
	return t.TaskID
}

// live sends a message to a process whose answer nobody will hear, and returns the id of the task that it opened. Unlike
// begin it has the run start at that very process.
func (c *cluster) live(n *node, m message) string {
	c.Helper()
	ids, over := make(chan string, 1), make(chan error, 1)
	go func() {
		over <- n.stream(c.Context(), m.path(), call("message:stream", m.params()), func(ev event) bool {
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
	case <-time.After(10 * time.Second):
		c.Fatalf("no task comes of %q", m.text)
	}
	return ""
}

// TestF1Kill kills a worker during a model call. The task ends in time, once, and the model was asked once more at most.
func TestF1Kill(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, c *cluster) {
		held := c.model.gates.close("hello")
		m := message{agent: "modelled", text: "hello", id: "m1"}
		id := c.live(c.nodes[0], m)
		held.await(t)
		c.nodes[0].kill()
		began := time.Now()
		held.release()
		n := c.survivor()
		got := c.restsAs(n, "modelled", id, "completed", rescue)
		took := time.Since(began)
		if got.text() != "Hello to you." || c.model.asked("hello") != 2 {
			t.Errorf("the task says %q after %d model calls, want 2", got.text(), c.model.asked("hello"))
		}
		say(t, "the task ended %v after the kill", took.Round(time.Millisecond))
		// Whoever was cut off sends the same message again and finds the same task.
		again, err := n.send(t.Context(), m)
		c.must(err)
		if again.TaskID != id {
			t.Errorf("the same message opened task %s, want %s", again.TaskID, id)
		}
		c.oneEnd(n, "modelled", id)
	})
}

// restorePoint is a place of a task that it can be restored to.
type restorePoint struct {
	ID     int64
	Reason string
	Step   int
	At     string
}

// TestF1RestorePoints kills the worker of one task twice: when the first model call has begun, and right behind the after_tools
// and before_llm points that follow the tool's answer. These are on the log by then, and stay as they were. The next process goes
// on behind them: it makes no call again but the model call that was cut off, before which it keeps another point.
func TestF1RestorePoints(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, c *cluster) {
		c.app("restorable", c.config()+"storage: {checkpoint: {enabled: true, after_tools: true, before_llm: true}}\n")
		token := c.mint("restorable", "ana")
		for _, n := range c.nodes {
			n.token = token
		}
		kept := func(n *node, id string) (points []restorePoint, names []string) {
			t.Helper()
			var list struct{ Checkpoints []restorePoint }
			c.must(n.ask(t.Context(), http.MethodGet, "/tasks/"+id+"/checkpoints", nil, &list))
			for _, p := range list.Checkpoints {
				names = append(names, p.Reason+" "+itoa(p.Step))
			}
			return list.Checkpoints, names
		}

		thinking, acting := c.model.gates.close("once"), c.tools.gates.close("once")
		id := c.live(c.nodes[0], message{agent: "modelled", text: "once"})
		thinking.await(t)
		c.nodes[0].kill()
		thinking.release()
		n := c.survivor()

		acting.await(t)
		thinking = c.model.gates.close("once")
		acting.release()
		thinking.await(t)
		before, names := kept(n, id)
		want := []string{"start 0", "before_llm 0", "after_tools 1", "before_llm 1"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("before the second kill (-want +got):\n%s", diff)
		}
		n.kill()
		thinking.release()
		last := c.nodes[0]
		last.restart()

		c.restsAs(last, "modelled", id, "completed", rescue)
		after, names := kept(last, id)
		if diff := cmp.Diff(append(want, "before_llm 1"), names); diff != "" {
			t.Errorf("at the end (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, after[:min(len(before), len(after))]); diff != "" {
			t.Errorf("the points of the process that was killed are others now (-before +after):\n%s", diff)
		}
		if asked, effects := c.model.asked("once"), len(c.tools.of("once")); asked != 4 || effects != 1 {
			t.Errorf("the model was asked %d times, want 4: each of two calls and once more after its kill; the tool had %d effects, want 1", asked, effects)
		}
		c.oneEnd(last, "modelled", id)
	})
}

// oneEnd wants a task's log to have one terminal event, its last.
func (c *cluster) oneEnd(n *node, agent, id string) {
	c.Helper()
	log, err := n.log(c.Context(), agent, id)
	c.must(err)
	ends := 0
	for _, ev := range log {
		if ev.ended() {
			ends++
		}
	}
	if ends != 1 || !log[len(log)-1].ended() {
		c.Errorf("the log of task %s has %d ends", id, ends)
	}
}

// TestF2Kill kills a worker during a tool call, whose effect has taken place. What may not be repeated is not: a human
// is asked. What may be is.
func TestF2Kill(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, c *cluster) {
		once, again := c.tools.gates.close("once"), c.tools.gates.close("again")
		first := c.live(c.nodes[0], message{agent: "modelled", text: "once"})
		second := c.live(c.nodes[0], message{agent: "modelled", text: "again"})
		once.await(t)
		again.await(t)
		c.nodes[0].kill()
		once.release()
		again.release()
		n := c.survivor()
		c.restsAs(n, "modelled", second, "completed", rescue)
		asked := c.restsAs(n, "modelled", first, "input_required", rescue)
		if got := c.tools.of("again"); len(got) != 2 || got[0].key != got[1].key {
			t.Errorf("the call that may be repeated had the effects %v, want two with one key", got)
		}
		waiting, err := n.approvals(t.Context(), asked)
		c.must(err)
		if len(waiting) != 1 || waiting[0].Kind != "rerun" {
			t.Fatalf("what waits is %+v, want the call whose outcome is unknown", waiting)
		}
		c.must(n.decide(t.Context(), "reject", first, waiting[0].CallID))
		c.restsAs(n, "modelled", first, "rejected", rescue)
		if got := c.tools.of("once"); len(got) != 1 {
			t.Errorf("the call that may not be repeated had %d effects", len(got))
		}
		c.oneEnd(n, "modelled", first)
		c.oneEnd(n, "modelled", second)
	})
}

// TestF3Commit kills a process around the commits of ten messages: when they are on their way to the database and nothing of
// them arrives, when they arrive and the database's answer is lost, and when the clients have just been told that they are
// accepted. What was acknowledged is durable, what was not is absent or whole, and sent again each message is one task with one
// effect.
func TestF3Commit(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	n, other := c.nodes[0], c.nodes[1]
	h := &history{}
	written := func(like string) int64 {
		return c.sql("SELECT COUNT(*) FROM sent WHERE message_id LIKE $1", like+"%")[0][0].(int64)
	}
	c.sql(`CREATE FUNCTION held() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$`)
	c.sql(`CREATE TRIGGER held BEFORE INSERT ON sent FOR EACH ROW EXECUTE FUNCTION held()`)
	for _, x := range []struct {
		name  string
		state wire
	}{{"before", blackHole}, {"amid", halfOpen}, {"after", whole}} {
		messages := make([]message, 10)
		for i := range messages {
			messages[i] = message{text: "record " + x.name + itoa(i), id: x.name + itoa(i), background: true}
		}
		free := func() {}
		if x.name == "amid" {
			free = c.hold("SELECT pg_advisory_xact_lock(7)")
		} else {
			n.pg.set(x.state)
		}
		var acknowledged sync.Map
		var all sync.WaitGroup
		for _, m := range messages {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if got, err := n.send(ctx, m); err == nil {
					acknowledged.Store(m.id, got.TaskID)
				}
			})
		}
		switch x.name {
		case "before":
			time.Sleep(200 * time.Millisecond)
		case "amid":
			c.within(10*time.Second, "a message waits for its row and nothing else", func() bool {
				return len(c.sql(`SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND waitstart < clock_timestamp() - INTERVAL '300ms'`)) > 0
			})
			n.pg.set(x.state)
			free()
			c.within(10*time.Second, "a commit has taken effect", func() bool { return written(x.name) > 0 })
		case "after":
			all.Wait()
		}
		n.kill()
		all.Wait()
		there, told := written(x.name), 0
		acknowledged.Range(func(any, any) bool { told++; return true })
		say(t, "%s: of 10 messages %d were acknowledged, %d are there", x.name, told, there)
		if x.name == "before" && there != 0 || x.name == "after" && told != 10 || int64(told) > there {
			t.Errorf("%s: of 10 messages %d were acknowledged, %d are there", x.name, told, there)
		}
		n.pg.set(whole)
		n.restart()
		together(len(messages), func(i int) {
			m := messages[i]
			m.background = false
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := other.send(ctx, m)
			if err != nil {
				t.Errorf("%s: the message sent again is answered %v", m.id, err)
				return
			}
			if id, ok := acknowledged.Load(m.id); ok && id != got.TaskID {
				t.Errorf("%s: the message sent again is task %s, it was acknowledged as %v", m.id, got.TaskID, id)
			}
			h.add(m, got.TaskID)
		})
		if n := written(x.name); n != int64(len(messages)) {
			t.Errorf("%s: 10 messages have %d tasks", x.name, n)
		}
	}
	c.check(h, other, rescue)
}

// TestF4Stop stops a worker for longer than its lease and wakes it: in a model call, and in a tool call. Another has
// finished its tasks by then, and the woken one changes nothing.
func TestF4Stop(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	hello, again := c.model.gates.close("hello"), c.tools.gates.close("again")
	thinking := c.live(c.nodes[0], message{agent: "modelled", text: "hello"})
	acting := c.live(c.nodes[0], message{agent: "modelled", text: "again"})
	hello.await(t)
	again.await(t)
	c.nodes[0].freeze()
	hello.release()
	again.release()
	c.restsAs(c.nodes[1], "modelled", thinking, "completed", rescue)
	c.restsAs(c.nodes[1], "modelled", acting, "completed", rescue)
	before := c.sql("SELECT task, seq, body FROM event ORDER BY task, seq")
	calls, effects := c.model.asked("hello")+c.model.asked("again"), len(c.tools.of("again"))
	c.nodes[0].signal(syscall.SIGCONT)
	c.within(10*time.Second, "the woken process serves again", func() bool {
		_, err := c.nodes[0].get(t.Context(), "modelled", thinking)
		return err == nil
	})
	time.Sleep(stale)
	after := c.sql("SELECT task, seq, body FROM event ORDER BY task, seq")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the log before and after the worker woke (-before +after):\n%s", diff)
	}
	if n := c.model.asked("hello") + c.model.asked("again"); n != calls {
		t.Errorf("the woken worker asked the model %d times", n-calls)
	}
	if n := len(c.tools.of("again")); n != effects {
		t.Errorf("the woken worker ran the tool %d times", n-effects)
	}
	got, err := c.nodes[0].send(t.Context(), message{text: "hi"})
	c.must(err)
	if got.text() != "hi" {
		t.Errorf("the woken process says %q", got.text())
	}
}

// TestF20Poison has a task kill every worker that takes it. It ends after its attempts, and its neighbours are unharmed.
func TestF20Poison(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2, args: []string{"--queue-max-retries", "2", "--queue-workers", "1"}})
	held := c.model.gates.close("poison")
	id := c.live(c.nodes[0], message{agent: "modelled", text: "poison"})
	h := &history{}
	for kill := range 3 {
		held.await(t)
		for i := range 4 {
			m := message{text: "hello neighbour" + itoa(4*kill+i), id: "n" + itoa(4*kill+i)}
			got, err := c.nodes[1].send(t.Context(), m)
			c.must(err)
			h.add(m, got.TaskID)
		}
		// Which of the two has it is not to be seen from outside: the one that beats on without it takes it next.
		for i, n := range c.nodes {
			if n.metric("stoa_runs_inflight") > 0 {
				n.kill()
				n.restart()
				break
			} else if i == 1 {
				t.Fatal("nobody works on the task")
			}
		}
	}
	got := c.restsAs(c.nodes[1], "modelled", id, "failed", rescue)
	if n := c.model.asked("poison"); n != 3 {
		t.Errorf("the task was tried %d times, want 3", n)
	}
	if !strings.Contains(got.text(), "internal error") && !strings.Contains(got.text(), "attempts") {
		t.Errorf("the task says %q", got.text())
	}
	var dead struct {
		Runs []struct {
			TaskID   string `json:"task_id"`
			Attempts int
		}
	}
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodGet, "/admin/queue/dead", nil, &dead))
	if len(dead.Runs) != 1 || dead.Runs[0].TaskID != id || dead.Runs[0].Attempts != 3 {
		t.Errorf("the dead letters are %+v, want the task's after 3 attempts", dead.Runs)
	}
	c.check(h, c.nodes[1], rescue)
	c.oneEnd(c.nodes[1], "modelled", id)
}
