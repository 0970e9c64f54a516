package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// together runs f(0) ... f(n-1) at once and returns when all have ended.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	all.Wait()
}

// TestF10Race has replicas race on queued tasks: each has one owner, one run of its tool, one end.
func TestF10Race(t *testing.T) {
	t.Parallel()
	tasks := 1000
	if !full {
		tasks = 100
	}
	c := up(t, setup{nodes: 3, args: []string{"--queue-workers", "16"}})
	h := &history{}
	began := time.Now()
	together(20, func(i int) {
		for n := i; n < tasks; n += 20 {
			m := message{text: "record w" + itoa(n), id: "m" + itoa(n), background: true}
			got, err := c.nodes[n%3].send(t.Context(), m)
			if err != nil {
				t.Errorf("%s: %v", m.text, err)
				continue
			}
			h.add(m, got.TaskID)
		}
	})
	c.check(h, c.nodes[0], time.Minute)
	say(t, "%d tasks on 3 processes in %v", tasks, time.Since(began).Round(time.Millisecond))
	for n := range tasks {
		if got := c.tools.of("w" + itoa(n)); len(got) != 1 {
			t.Errorf("task %d had %d effects", n, len(got))
		}
	}
}

// TestF10Decide has three people decide on each of some calls at once, at different replicas: one approves, one rejects,
// one cancels. One of them is heard, the others are told 409, and the call runs only if it was the first.
func TestF10Decide(t *testing.T) {
	t.Parallel()
	tasks := 100
	if !full {
		tasks = 12
	}
	c := up(t, setup{nodes: 3})
	heard := map[string]int{}
	for n := range tasks {
		word := "w" + itoa(n)
		id := c.begin(c.nodes[n%3], message{text: "careful " + word})
		waiting, err := c.nodes[0].approvals(t.Context(), c.restsAs(c.nodes[0], "", id, "input_required", rescue))
		c.must(err)
		if len(waiting) != 1 {
			t.Fatalf("%s: what waits is %+v", word, waiting)
		}
		call := waiting[0].CallID
		var errs [3]error
		together(3, func(i int) {
			switch node := c.nodes[(n+i)%3]; i {
			case 0:
				errs[i] = node.decide(t.Context(), "approve", id, call)
			case 1:
				errs[i] = node.decide(t.Context(), "reject", id, call)
			case 2:
				errs[i] = node.cancel(t.Context(), "", id)
			}
		})
		got, err := c.nodes[0].rest(t.Context(), "", id)
		c.must(err)
		heard[got.Status.State]++
		// A cancellation may follow an approval; nothing follows a rejection or a cancellation.
		approved, rejected, cancelled := errs[0] == nil, errs[1] == nil, errs[2] == nil
		if approved && rejected || rejected && cancelled || !approved && !rejected && !cancelled {
			t.Errorf("%s: approve %v, reject %v, cancel %v", word, errs[0], errs[1], errs[2])
		}
		for i, err := range errs {
			r, _ := err.(*refusal) //nolint:errorlint // what the client returns as it is
			if err != nil && (r == nil || r.status != http.StatusConflict && r.rpc == 0) {
				t.Errorf("%s: number %d was answered %v", word, i, err)
			}
		}
		want := "rejected"
		if approved {
			want = "completed"
		}
		if cancelled {
			want = "cancelled"
		}
		effects := len(c.tools.of(word))
		if got.Status.State != want && !(cancelled && approved) || effects > 1 || effects > 0 && !approved {
			t.Errorf("%s: approve %v, reject %v, cancel %v: the task is %s, the call had %d effects", word, errs[0], errs[1], errs[2], got.Status.State, effects)
		}
		c.oneEnd(c.nodes[0], "", id)
	}
	say(t, "of %d tasks: %v", tasks, heard)
}

// TestF12Twice sends the same message twice: in parallel to different replicas, with another body, and again after the
// process that took it was killed. There is one task.
func TestF12Twice(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	for round := range 10 {
		m := message{text: "record r" + itoa(round), id: "same" + itoa(round), context: "c" + itoa(round)}
		ids := make([]string, 20)
		together(len(ids), func(i int) {
			got, err := c.nodes[i%2].send(t.Context(), m)
			if err != nil {
				t.Errorf("number %d: %v", i, err)
			}
			ids[i] = got.TaskID
		})
		if slices.Sort(ids); len(slices.Compact(ids)) != 1 || len(c.tools.of("r"+itoa(round))) != 1 {
			t.Errorf("one message opened %v and had %d effects", slices.Compact(ids), len(c.tools.of("r"+itoa(round))))
		}
		m.text = "another"
		_, err := c.nodes[1].send(t.Context(), m)
		if r, _ := err.(*refusal); r == nil || r.rpc != -32602 { //nolint:errorlint // as above
			t.Errorf("the same id with another body is answered %v", err)
		}
		other := map[string]any{"messageId": m.id, "contextId": m.context, "role": "ROLE_USER", "parts": []any{map[string]any{"text": "another"}}}
		a, err := c.nodes[0].do(t.Context(), http.MethodPost, "/v1/agents/assistant/message:send", map[string]any{"message": other})
		if err != nil || a.status != http.StatusUnprocessableEntity {
			t.Errorf("over REST the same id with another body is answered %d %s (%v)", a.status, a.body, err)
		}
	}
	// A message whose process dies before anybody hears of it.
	held := c.model.gates.close("hello")
	m := message{agent: "modelled", text: "hello", id: "lost"}
	id := c.live(c.nodes[0], m)
	held.await(t)
	c.nodes[0].kill()
	held.release()
	got, err := c.nodes[1].send(t.Context(), m)
	c.must(err)
	if got.TaskID != id || got.Status.State != "completed" {
		t.Errorf("the message sent again after a crash is task %s, %s; want %s, completed", got.TaskID, got.Status.State, id)
	}
}

// TestF12Key makes one administrative call many times at once under one Idempotency-Key, at different replicas: it takes
// effect once, whoever comes while it is under way is told 409, and another body under the same key 422. The key of a process that
// died in the middle of its call is free for the same call after five minutes.
func TestF12Key(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2})
	create := func(n int, name string) (answer, error) {
		body := map[string]any{"name": name, "config": c.config(), "grants": []string{"private_network"}}
		return c.nodes[n%2].admin().do(t.Context(), http.MethodPost, "/admin/apps", body, "Idempotency-Key", "k1")
	}
	codes := map[int]int{}
	var mu sync.Mutex
	together(20, func(i int) {
		a, err := create(i, "globex")
		mu.Lock()
		defer mu.Unlock()
		if codes[a.status]++; err != nil {
			t.Error(err)
		}
	})
	if codes[http.StatusCreated] == 0 || codes[http.StatusCreated]+codes[http.StatusConflict] != 20 {
		t.Errorf("20 calls under one key were answered %v", codes)
	}
	c.within(5*time.Second, "the call is answered as it was", func() bool {
		a, err := create(1, "globex")
		return err == nil && a.status == http.StatusCreated
	})
	if a, err := create(0, "initech"); err != nil || a.status != http.StatusUnprocessableEntity {
		t.Errorf("the key with another body is answered %d %s (%v)", a.status, a.body, err)
	}
	// A call whose process dies in the middle of it: the key is claimed, and the app cannot be written yet.
	again := func() int {
		body := map[string]any{"name": "umbrella", "config": c.config(), "grants": []string{"private_network"}}
		a, err := c.nodes[1].admin().do(t.Context(), http.MethodPost, "/admin/apps", body, "Idempotency-Key", "k2")
		c.must(err)
		return a.status
	}
	free := c.hold("LOCK TABLE app IN EXCLUSIVE MODE")
	dying := make(chan error, 1)
	go func() {
		body := map[string]any{"name": "umbrella", "config": c.config(), "grants": []string{"private_network"}}
		_, err := c.nodes[0].admin().do(t.Context(), http.MethodPost, "/admin/apps", body, "Idempotency-Key", "k2")
		dying <- err
	}()
	c.within(10*time.Second, "the key is claimed", func() bool {
		return len(c.sql("SELECT 1 FROM admin_call WHERE key = 'k2'")) == 1
	})
	c.nodes[0].kill()
	if err := <-dying; err == nil {
		t.Error("a call was answered whose process is dead")
	}
	free()
	if got := again(); got != http.StatusConflict {
		t.Errorf("a key that a dead process holds is answered %d, want 409", got)
	}
	c.setTime(c.time().Add(6 * time.Minute))
	if got := again(); got != http.StatusCreated {
		t.Errorf("the key of a process that has been dead for long is answered %d, want 201", got)
	}
	var list struct{ Apps []struct{ Name string } }
	c.must(c.nodes[1].admin().ask(t.Context(), http.MethodGet, "/admin/apps", nil, &list))
	if len(list.Apps) != 3 {
		t.Errorf("the apps are %v", list.Apps)
	}
}

// TestF21Cold sends the first thousand calls of a cold tenant at once, and some of one whose configuration takes ten seconds and
// more to read. All are answered, each app is built once, and meanwhile another tenant is served as before.
func TestF21Cold(t *testing.T) {
	t.Parallel()
	calls, hangs := 1000, 20*time.Second
	if !full {
		calls, hangs = 200, 10*time.Second
	}
	c := up(t, setup{nodes: 1, args: []string{"--max-inflight", "2000"}})
	c.app("globex", c.config())
	warm := &client{base: c.nodes[0].base, token: c.mint("globex", "bob"), http: c.client}
	c.app("initech", c.config())
	slow := &client{base: c.nodes[0].base, token: c.mint("initech", "eve"), http: c.client}
	c.nodes[0].kill()
	hanging := c.sql("SELECT tenant FROM app WHERE name = 'initech'")[0][0].(string)
	c.sql(fmt.Sprintf("CREATE POLICY hangs ON app_revision AS RESTRICTIVE USING (tenant <> '%s' OR pg_sleep(%v) IS NOT NULL)", hanging, hangs.Seconds()))
	c.nodes[0].restart()
	_, err := warm.send(t.Context(), message{text: "hi"})
	c.must(err)
	built := func() float64 { return c.nodes[0].metric(`stoa_app_loads_total{outcome="built"}`) }
	before := built()
	ctx, cancel := context.WithCancel(t.Context())
	var slowest time.Duration
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := warm.send(context.WithoutCancel(ctx), message{text: "hi"}); err != nil {
				t.Errorf("the other tenant is answered %v", err)
			}
			slowest = max(slowest, time.Since(began))
		}
	})
	began := time.Now()
	others.Go(func() {
		together(50, func(i int) {
			if got, err := slow.send(t.Context(), message{text: "hi"}); err != nil || got.text() != "hi" {
				t.Errorf("call %d of the app that is slow to build is answered %q (%v)", i, got.text(), err)
			}
		})
		if took := time.Since(began); took < hangs {
			t.Errorf("the app that is slow to build answered after %v", took)
		}
		cancel()
	})
	together(calls, func(i int) {
		word := fmt.Sprintf("hello w%d", i)
		if got, err := c.nodes[0].send(t.Context(), message{text: word}); err != nil || got.text() != word {
			t.Errorf("call %d is answered %q (%v)", i, got.text(), err)
		}
	})
	took := time.Since(began)
	others.Wait()
	if n := built() - before; n != 2 {
		t.Errorf("two apps were built %v times", n)
	}
	if took >= hangs || slowest >= hangs/2 {
		t.Errorf("while an app is slow to build others' first calls took %v, and another's slowest %v", took, slowest)
	}
	say(t, "%d first calls in %v; meanwhile another tenant's slowest call took %v", calls, took.Round(time.Millisecond), slowest.Round(time.Millisecond))
	if out := c.nodes[0].complaints(); strings.Contains(out, "level=ERROR") {
		t.Errorf("the process said:\n%s", tail(out, 2000))
	}
}
