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

// runConcurrently runs f(0) ... f(n-1) concurrently and returns when all have ended.
func runConcurrently(n int, f func(i int)) {
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

// TestF10Race lets replicas compete for queued tasks: each has one owner, one execution of its tool, one end.
func TestF10Race(t *testing.T) {
	t.Parallel()
	tasks := 1000
	if !isFull {
		tasks = 100
	}
	c := startCluster(t, clusterOptions{nodes: 3, args: []string{"--queue-workers", "16"}})
	h := &history{}
	began := time.Now()
	runConcurrently(20, func(i int) {
		for n := i; n < tasks; n += 20 {
			m := message{text: "record w" + itoa(n), id: "m" + itoa(n), background: true}
			got, err := c.nodes[n%3].sendMessage(t.Context(), m)
			if err != nil {
				t.Errorf("%s: %v", m.text, err)
				continue
			}
			h.addMessage(m, got.TaskID)
		}
	})
	c.checkHistory(h, c.nodes[0], time.Minute)
	reportf(t, "%d tasks on 3 processes in %v", tasks, time.Since(began).Round(time.Millisecond))
	for n := range tasks {
		if got := c.tools.effectsNamed("w" + itoa(n)); len(got) != 1 {
			t.Errorf("task %d had %d effects", n, len(got))
		}
	}
}

// TestF10Decide sends three decisions about each of some calls concurrently to different replicas: an approval, a
// rejection and a cancellation. One is accepted, the others are answered with 409, and the call runs only if the
// approval came first.
func TestF10Decide(t *testing.T) {
	t.Parallel()
	tasks := 100
	if !isFull {
		tasks = 12
	}
	c := startCluster(t, clusterOptions{nodes: 3})
	received := map[string]int{}
	for n := range tasks {
		word := "w" + itoa(n)
		id := c.sendBackground(c.nodes[n%3], message{text: "careful " + word})
		waiting, err := c.nodes[0].listApprovals(t.Context(), c.waitForState(c.nodes[0], "", id, "input_required", rescueTimeout))
		c.requireNoError(err)
		if len(waiting) != 1 {
			t.Fatalf("%s: what waits is %+v", word, waiting)
		}
		call := waiting[0].CallID
		var errs [3]error
		runConcurrently(3, func(i int) {
			switch node := c.nodes[(n+i)%3]; i {
			case 0:
				errs[i] = node.decideCall(t.Context(), "approve", id, call)
			case 1:
				errs[i] = node.decideCall(t.Context(), "reject", id, call)
			case 2:
				errs[i] = node.cancelTask(t.Context(), "", id)
			}
		})
		got, err := c.nodes[0].waitSettled(t.Context(), "", id)
		c.requireNoError(err)
		received[got.Status.State]++
		// A cancellation may follow an approval; nothing follows a rejection or a cancellation.
		approved, rejected, cancelled := errs[0] == nil, errs[1] == nil, errs[2] == nil
		if approved && rejected || rejected && cancelled || !approved && !rejected && !cancelled {
			t.Errorf("%s: approve %v, reject %v, cancel %v", word, errs[0], errs[1], errs[2])
		}
		for i, err := range errs {
			r, _ := err.(*responseError) //nolint:errorlint // what the client returns as it is
			if err != nil && (r == nil || r.status != http.StatusConflict && r.rpcCode == 0) {
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
		effects := len(c.tools.effectsNamed(word))
		if got.Status.State != want && !(cancelled && approved) || effects > 1 || effects > 0 && !approved {
			t.Errorf("%s: approve %v, reject %v, cancel %v: the task is %s, the call had %d effects", word, errs[0], errs[1], errs[2], got.Status.State, effects)
		}
		c.checkOneEnd(c.nodes[0], "", id)
	}
	reportf(t, "of %d tasks: %v", tasks, received)
}

// TestF12Twice sends the same message twice: in parallel to different replicas, with another body, and again after
// the process that accepted it was killed. There is one task.
func TestF12Twice(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	for round := range 10 {
		m := message{text: "record r" + itoa(round), id: "same" + itoa(round), context: "c" + itoa(round)}
		ids := make([]string, 20)
		runConcurrently(len(ids), func(i int) {
			got, err := c.nodes[i%2].sendMessage(t.Context(), m)
			if err != nil {
				t.Errorf("number %d: %v", i, err)
			}
			ids[i] = got.TaskID
		})
		if slices.Sort(ids); len(slices.Compact(ids)) != 1 || len(c.tools.effectsNamed("r"+itoa(round))) != 1 {
			t.Errorf("one message opened %v and had %d effects", slices.Compact(ids), len(c.tools.effectsNamed("r"+itoa(round))))
		}
		m.text = "another"
		_, err := c.nodes[1].sendMessage(t.Context(), m)
		if r, _ := err.(*responseError); r == nil || r.rpcCode != -32602 { //nolint:errorlint // as above
			t.Errorf("the same id with another body is answered %v", err)
		}
		other := map[string]any{"messageId": m.id, "contextId": m.context, "role": "ROLE_USER", "parts": []any{map[string]any{"text": "another"}}}
		a, err := c.nodes[0].doRequest(t.Context(), http.MethodPost, "/v1/agents/assistant/message:send", map[string]any{"message": other})
		if err != nil || a.status != http.StatusUnprocessableEntity {
			t.Errorf("over REST the same id with another body is answered %d %s (%v)", a.status, a.body, err)
		}
	}
	// A message whose process dies before it has answered.
	blocked := c.model.barriers.blockRequests("hello")
	m := message{agent: "modelled", text: "hello", id: "lost"}
	id := c.startTaskAt(c.nodes[0], m)
	blocked.waitForRequest(t)
	c.nodes[0].killProcess()
	blocked.releaseRequests()
	got, err := c.nodes[1].sendMessage(t.Context(), m)
	c.requireNoError(err)
	if got.TaskID != id || got.Status.State != "completed" {
		t.Errorf("the message sent again after a crash is task %s, %s; want %s, completed", got.TaskID, got.Status.State, id)
	}
}

// TestF12Key makes one administrative call many times concurrently with one Idempotency-Key, at different replicas:
// it takes effect once, calls meanwhile are answered with 409, and another body with the same key with 422. The key
// of a process that died during its call can be used for the same call after five minutes.
func TestF12Key(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	create := func(n int, name string) (response, error) {
		body := map[string]any{"name": name, "config": c.appConfig(), "grants": []string{"private_network"}}
		return c.nodes[n%2].adminClient().doRequest(t.Context(), http.MethodPost, "/admin/apps", body, "Idempotency-Key", "k1")
	}
	codes := map[int]int{}
	var mu sync.Mutex
	runConcurrently(20, func(i int) {
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
	c.waitWithin(setupTimeout, "the call is answered as it was", func() bool {
		a, err := create(1, "globex")
		return err == nil && a.status == http.StatusCreated
	})
	if a, err := create(0, "initech"); err != nil || a.status != http.StatusUnprocessableEntity {
		t.Errorf("the key with another body is answered %d %s (%v)", a.status, a.body, err)
	}
	// A call whose process dies during it: the key is claimed, and the app cannot be written yet.
	again := func() int {
		body := map[string]any{"name": "umbrella", "config": c.appConfig(), "grants": []string{"private_network"}}
		a, err := c.nodes[1].adminClient().doRequest(t.Context(), http.MethodPost, "/admin/apps", body, "Idempotency-Key", "k2")
		c.requireNoError(err)
		return a.status
	}
	free := c.acquireLock("LOCK TABLE app IN EXCLUSIVE MODE")
	dying := make(chan error, 1)
	go func() {
		body := map[string]any{"name": "umbrella", "config": c.appConfig(), "grants": []string{"private_network"}}
		_, err := c.nodes[0].adminClient().doRequest(t.Context(), http.MethodPost, "/admin/apps", body, "Idempotency-Key", "k2")
		dying <- err
	}()
	c.waitWithin(setupTimeout, "the key is claimed", func() bool {
		return len(c.querySQL("SELECT 1 FROM admin_call WHERE key = 'k2'")) == 1
	})
	c.nodes[0].killProcess()
	if err := <-dying; err == nil {
		t.Error("a call was answered whose process is dead")
	}
	free()
	if got := again(); got != http.StatusConflict {
		t.Errorf("a key that a dead process holds is answered %d, want 409", got)
	}
	c.setDatabaseTime(c.databaseTime().Add(6 * time.Minute))
	if got := again(); got != http.StatusCreated {
		t.Errorf("the key of a process that has been dead for long is answered %d, want 201", got)
	}
	var list struct{ Apps []struct{ Name string } }
	c.requireNoError(c.nodes[1].adminClient().requestJSON(t.Context(), http.MethodGet, "/admin/apps", nil, &list))
	if len(list.Apps) != 3 {
		t.Errorf("the apps are %v", list.Apps)
	}
}

// TestF21Cold sends the first thousand calls of a cold tenant concurrently, and some of one whose configuration takes
// ten seconds and more to read. All are answered, each app is built once, and meanwhile another tenant is served as
// before.
func TestF21Cold(t *testing.T) {
	t.Parallel()
	calls, timeout := 1000, 20*time.Second
	if !isFull {
		calls, timeout = 200, 10*time.Second
	}
	c := startCluster(t, clusterOptions{nodes: 1, args: append([]string{"--max-inflight", "2000"}, longStaleArgs...)})
	c.createApp("globex", c.appConfig())
	warm := &client{baseURL: c.nodes[0].baseURL, token: c.createToken("globex", "bob"), http: c.client}
	c.createApp("initech", c.appConfig())
	slow := &client{baseURL: c.nodes[0].baseURL, token: c.createToken("initech", "eve"), http: c.client}
	c.nodes[0].killProcess()
	hanging := c.querySQL("SELECT tenant FROM app WHERE name = 'initech'")[0][0].(string)
	c.querySQL(fmt.Sprintf("CREATE POLICY hangs ON app_revision AS RESTRICTIVE USING (tenant <> '%s' OR pg_sleep(%v) IS NOT NULL)", hanging, timeout.Seconds()))
	c.nodes[0].restartProcess()
	_, err := warm.sendMessage(t.Context(), message{text: "hi"})
	c.requireNoError(err)
	built := func() float64 { return c.nodes[0].readMetric(`stoa_app_loads_total{outcome="built"}`) }
	before := built()
	ctx, cancel := context.WithCancel(t.Context())
	var slowest time.Duration
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := warm.sendMessage(context.WithoutCancel(ctx), message{text: "hi"}); err != nil {
				t.Errorf("the other tenant is answered %v", err)
			}
			slowest = max(slowest, time.Since(began))
		}
	})
	began := time.Now()
	others.Go(func() {
		runConcurrently(50, func(i int) {
			if got, err := slow.sendMessage(t.Context(), message{text: "hi"}); err != nil || got.lastText() != "hi" {
				t.Errorf("call %d of the app that is slow to build is answered %q (%v)", i, got.lastText(), err)
			}
		})
		if took := time.Since(began); took < timeout {
			t.Errorf("the app that is slow to build answered after %v", took)
		}
		cancel()
	})
	runConcurrently(calls, func(i int) {
		word := fmt.Sprintf("hello w%d", i)
		if got, err := c.nodes[0].sendMessage(t.Context(), message{text: word}); err != nil || got.lastText() != word {
			t.Errorf("call %d is answered %q (%v)", i, got.lastText(), err)
		}
	})
	took := time.Since(began)
	others.Wait()
	if n := built() - before; n != 2 {
		t.Errorf("two apps were built %v times", n)
	}
	if took >= timeout || slowest >= timeout/2 {
		t.Errorf("while an app is slow to build others' first calls took %v, and another's slowest %v", took, slowest)
	}
	reportf(t, "%d first calls in %v; meanwhile another tenant's slowest call took %v", calls, took.Round(time.Millisecond), slowest.Round(time.Millisecond))
	if out := c.nodes[0].filteredOutput(); strings.Contains(out, "level=ERROR") {
		t.Errorf("the process wrote:\n%s", lastBytes(out, 2000))
	}
}
