package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db/dbtest"
)

// onEachFleet runs f with the arguments that connect the processes of a fleet: over PostgreSQL alone, and over Redis,
// which also carries streamed text.
func onEachFleet(t *testing.T, f func(t *testing.T, text bool, args []string)) {
	t.Helper()
	t.Parallel()
	runOnEachFleet(t, (*testing.T).Parallel, f)
}

// onEachFleetSerially is onEachFleet while no other test runs, for a test with time limits.
func onEachFleetSerially(t *testing.T, f func(t *testing.T, text bool, args []string)) {
	t.Helper()
	runOnEachFleet(t, func(*testing.T) {}, f)
}

func runOnEachFleet(t *testing.T, begin func(t *testing.T), f func(t *testing.T, text bool, args []string)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		begin(t)
		f(t, false, []string{"--database", dbtest.NewPostgresURL(t)})
	})
	t.Run("redis", func(t *testing.T) {
		begin(t)
		f(t, true, []string{"--database", dbtest.NewPostgresURL(t), "--redis", dbtest.RequireRedisURL(t)})
	})
}

// streamingApp is an app whose agent produces several facts and much streamed text.
const streamingApp = `
llms:
  m:
    provider: scripted
    script:
      - when: {tool_result: sum}
        then:
          - {say: "and the "}
          - {say: "second answer", pause: 5ms}
          - {artifact: {name: b.txt, text: "two"}}
      - when: {text: "^slow"}
        then: [{say: "one ", pause: 3s}, {say: two}]
      - when: {text: "^long"}
        then: [{say: "one ", pause: 60s}, {say: two}]
      - then:
          - {artifact: {name: a.txt, text: "one"}}
          - {say: "the first "}
          - {say: "answer ", pause: 5ms}
          - {say: "is long", pause: 5ms}
          - {call: {tool: sum, arguments: {expression: "1 + 1"}}}
tools: {sum: {type: function, handler: calculator}}
agents: {assistant: {llm: m, tools: [sum]}}
`

// streamEvent is one event of a stream.
type streamEvent struct {
	ID   int64
	Body struct {
		TaskID   string `json:"task_id"`
		Artifact struct{ Name string }
		Status   struct {
			State   string
			Message struct{ Parts []struct{ Text string } }
		}
		Error any
	}
}

func (e streamEvent) statusText() (s string) {
	for _, p := range e.Body.Status.Message.Parts {
		s += p.Text
	}
	return s
}

// eventStream is an open stream of server-sent events.
type eventStream struct {
	t           *testing.T
	body        io.ReadCloser
	lines       *bufio.Reader
	close       context.CancelFunc
	retryHinted bool // the stream contained a retry hint
	err         error
}

func (p *process) openStream(t *testing.T, token string, last int64, envelope map[string]any) *eventStream {
	t.Helper()
	req := p.newRequest(t, "POST", "/agents/assistant", token, envelope)
	if last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	return &eventStream{t: t, body: resp.Body, lines: bufio.NewReader(resp.Body), close: cancel}
}

// nextEvent returns the next event, false at the end of the stream or after an error.
func (s *eventStream) nextEvent() (ev streamEvent, ok bool) {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.err = err
			return ev, false
		}
		switch field, value, _ := strings.Cut(strings.TrimSpace(line), ": "); field {
		case "id":
			ev.ID, _ = strconv.ParseInt(value, 10, 64)
		case "retry":
			s.retryHinted = true
		case "data":
			if err := json.Unmarshal([]byte(value), &ev.Body); err != nil {
				s.t.Fatalf("%v in %s", err, value)
			}
			return ev, true
		}
	}
}

// readFacts reads to the end and returns the events that have an id.
func (s *eventStream) readFacts() (all []streamEvent) {
	s.t.Helper()
	for {
		ev, ok := s.nextEvent()
		if !ok {
			return all
		}
		if ev.ID > 0 {
			all = append(all, ev)
		}
	}
}

// countResumes returns how often TestResume cuts a stream: STOA_TEST_RESUMES, or 200 times.
func countResumes(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("STOA_TEST_RESUMES"))
	if err != nil {
		n = 200
	}
	if testing.Short() {
		n = 20
	}
	return n
}

// TestResume opens streams at one replica, cuts them at random and resumes at the other: together both parts are the
// log, whatever part of it the worker had written by then.
func TestResume(t *testing.T) {
	onEachFleet(t, func(t *testing.T, _ bool, args []string) {
		replicas := []*process{startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)}
		replicas[0].createApp(t, "acme", streamingApp)
		token := replicas[0].createToken(t, "acme", "ana", nil)
		work := make(chan int)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range work {
					one, two := replicas[i%2], replicas[(i+1)%2]
					s := one.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage("go")))
					first, ok := s.nextEvent()
					if !ok {
						t.Errorf("no event came: %v", s.err)
						continue
					}
					id, got := first.Body.TaskID, []streamEvent{first}
					for range rand.IntN(16) {
						ev, ok := s.nextEvent()
						if !ok {
							break
						}
						if ev.ID > 0 {
							got = append(got, ev)
						}
					}
					s.close()
					got = append(got, two.openStream(t, token, got[len(got)-1].ID, newRPCCall("tasks/subscribe", map[string]any{"id": id})).readFacts()...)
					log := one.openStream(t, token, 0, newRPCCall("tasks/subscribe", map[string]any{"id": id, "after": 0})).readFacts()
					seen := func(evs []streamEvent) (out []string) {
						for _, ev := range evs {
							text := fmt.Sprintf("%d %s %s", ev.ID, ev.Body.Status.State, ev.Body.Artifact.Name)
							if ev.Body.Status.State == "completed" {
								text += ev.statusText()
							}
							out = append(out, text)
						}
						return out
					}
					if diff := cmp.Diff(seen(log), seen(got)); diff != "" || len(log) < 6 || !strings.HasSuffix(seen(log)[len(log)-1], "and the second answer") {
						t.Errorf("the log -, both parts of the stream +:\n%s\n%v", diff, seen(log))
					}
				}
			})
		}
		for i := range countResumes(t) {
			work <- i
		}
		close(work)
		wg.Wait()
	})
}

// steppedModel is a model that sends "one ", and the next word when the test allows it.
type steppedModel struct {
	url   string
	steps []chan struct{} // closed to release "two" and the end
}

func newSteppedModel(t *testing.T) *steppedModel {
	a := &steppedModel{steps: []chan struct{}{make(chan struct{}), make(chan struct{})}}
	srv := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "text/event-stream")
		for i, delta := range []string{`"delta":{"role":"assistant","content":"one "}`, `"delta":{"content":"two"}`, `"delta":{},"finish_reason":"stop"`} {
			if i > 0 {
				select {
				case <-a.steps[i-1]:
				case <-r.Context().Done():
					return
				}
			}
			_, _ = fmt.Fprintf(out, "data: {\"choices\":[{\"index\":0,%s}]}\n\n", delta)
			_ = http.NewResponseController(out).Flush()
		}
		_, _ = io.WriteString(out, "data: [DONE]\n\n")
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	a.url = srv.URL
	return a
}

// createApp creates the app acme, whose assistant uses the model a.
func (m *steppedModel) createApp(t *testing.T, p *process) {
	t.Helper()
	p.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "grants": []string{"private_network"}, "config": fmt.Sprintf(`
llms: {m: {provider: openai, model: m, base_url: %q, api_key: k}, s: {provider: scripted}}
agents: {assistant: {llm: m}, echo: {llm: s}}
`, m.url)})
}

// TestLiveElsewhere subscribes at another replica in the middle of a message: the reader gets the message from its
// start if text is carried, and in any case gets its end at once.
func TestLiveElsewhere(t *testing.T) {
	onEachFleet(t, func(t *testing.T, text bool, args []string) {
		model := newSteppedModel(t)
		one, two := startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)
		model.createApp(t, one)
		token := one.createToken(t, "acme", "ana", nil)
		var here, there [5]*eventStream
		for i := range here {
			here[i] = one.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage("go")))
			var ev streamEvent
			for ok := true; ok && ev.statusText() != "one "; {
				ev, ok = here[i].nextEvent()
			}
			there[i] = two.openStream(t, token, 0, newRPCCall("tasks/subscribe", map[string]any{"id": ev.Body.TaskID}))
			if ev, _ := there[i].nextEvent(); ev.Body.Status.State != "working" {
				t.Fatalf("a subscription begins with %+v", ev)
			}
			if text {
				if ev, _ := there[i].nextEvent(); ev.statusText() != "one " {
					t.Errorf("who comes in the middle reads %q", ev.statusText())
				}
			}
		}
		close(model.steps[0])
		for _, s := range there {
			if text {
				if ev, _ := s.nextEvent(); ev.statusText() != "two" || ev.ID != 0 {
					t.Errorf("then %q with id %d", ev.statusText(), ev.ID)
				}
			}
		}
		time.Sleep(3 * time.Second) // so that a reader that polls polls rarely
		close(model.steps[1])
		var late [len(here)]time.Duration
		var readers sync.WaitGroup
		for i := range here {
			var localEnd time.Time
			complete := make(chan struct{})
			readers.Go(func() {
				here[i].readFacts()
				localEnd = time.Now()
				close(complete)
			})
			readers.Go(func() {
				facts := there[i].readFacts()
				ended := time.Now()
				<-complete
				late[i] = ended.Sub(localEnd)
				if len(facts) == 0 || facts[len(facts)-1].statusText() != "one two" || facts[len(facts)-1].Body.Status.State != "completed" {
					t.Errorf("it ends with %+v", facts)
				}
			})
		}
		readers.Wait()
		if slices.Sort(late[:]); late[len(late)/2] > 500*time.Millisecond {
			t.Errorf("the ends were received elsewhere %v later", late)
		}
	})
}

// TestCancelAnywhere cancels a task, and a tool call, through a replica that does not run it.
func TestCancelAnywhere(t *testing.T) {
	onEachFleet(t, func(t *testing.T, _ bool, args []string) {
		begun, left := make(chan struct{}, 1), make(chan struct{}, 1)
		slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		}))
		defer slow.Close()
		one, two := startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)
		one.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret,
			map[string]any{"name": "acme", "config": fmt.Sprintf(hangingConfig, slow.URL), "grants": []string{"private_network"}})
		token := one.createToken(t, "acme", "ana", nil)
		begin := func() (s *eventStream, id, call string) {
			t.Helper()
			s = one.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage("go")))
			ev, ok := s.nextEvent()
			if !ok {
				t.Fatalf("no event: %v", s.err)
			}
			<-begun
			var got struct {
				Result struct {
					History []struct {
						ToolCalls []struct{ ID string } `json:"tool_calls"`
					}
				}
			}
			two.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", token, newRPCCall("tasks/get", map[string]any{"id": ev.Body.TaskID}))
			return s, ev.Body.TaskID, got.Result.History[len(got.Result.History)-1].ToolCalls[0].ID
		}
		ended := func(what string, began time.Time) {
			t.Helper()
			select {
			case <-left:
			case <-time.After(time.Minute):
				t.Fatalf("%s: the tool does not stop", what)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: the tool stopped after %v", what, took)
			}
		}

		s, id, call := begin()
		path := "/api/tasks/" + id + "/toolCalls/"
		two.requireStatus(t, http.StatusNotFound, nil, "POST", path+"nosuchcall/cancel", token, nil)
		began := time.Now()
		two.requireStatus(t, http.StatusOK, nil, "POST", path+call+"/cancel", token, map[string]any{"reason": "too slow"})
		ended("cancel of the call", began)
		facts := s.readFacts()
		if last := facts[len(facts)-1]; last.statusText() != "It says: cancelled by user: too slow" {
			t.Errorf("the task ends with %+v", last)
		}
		two.requireStatus(t, http.StatusNotFound, nil, "POST", path+call+"/cancel", token, nil)

		s, id, _ = begin()
		official := two.subscribeA2A(t, token, id)
		began = time.Now()
		two.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", token, newRPCCall("tasks/cancel", map[string]any{"id": id}))
		ended("cancel of the task", began)
		facts = s.readFacts()
		if last := facts[len(facts)-1]; last.Body.Status.State != "cancelled" || time.Since(began) > 5*time.Second {
			t.Errorf("after %v the stream ends with %+v", time.Since(began), last)
		}
		if all := official(); !strings.Contains(all, `"result":{"task":{"id":"`+id) || !strings.Contains(all[strings.LastIndex(all, "data: "):], "TASK_STATE_CANCELED") {
			t.Errorf("the official subscription at the other replica has %s", all)
		}
	})
}

// TestRoles checks that a web process accepts and serves and leaves runs to a worker, which serves no tenant's
// requests.
func TestRoles(t *testing.T) {
	onEachFleet(t, func(t *testing.T, text bool, args []string) {
		web := startProcess(t, t.TempDir(), append(args, "--role", "web")...)
		worker := startProcess(t, t.TempDir(), append(args, "--role", "worker")...)
		for p, role := range map[*process]string{web: "web", worker: "worker"} {
			var ready struct{ Status, Role string }
			p.requireStatus(t, http.StatusOK, &ready, "GET", "/ready", "", nil)
			if ready.Status != "ready" || ready.Role != role {
				t.Errorf("%s says it is %+v", role, ready)
			}
			p.requireStatus(t, http.StatusOK, nil, "GET", "/health", "", nil)
		}
		web.createApp(t, "acme", streamingApp)
		token := web.createToken(t, "acme", "ana", nil)
		for _, path := range []string{"/agents", "/tasks", "/admin/apps"} {
			worker.requireStatus(t, http.StatusNotFound, nil, "GET", path, testSecret, nil)
		}
		worker.requireStatus(t, http.StatusNotFound, nil, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hi")))
		var took, alone []time.Duration
		for range 20 {
			var got taskAnswer
			began := time.Now()
			web.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", token, newRPCCall("tasks/get", map[string]any{"id": "nosuch"}))
			alone = append(alone, time.Since(began))
			began = time.Now()
			web.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hi")))
			took = append(took, time.Since(began))
			if got.statusText() != "and the second answer" {
				t.Fatalf("%+v", got)
			}
		}
		slices.Sort(took)
		slices.Sort(alone)
		t.Logf("a blocking call over two processes took %v (median), a look into the database through one %v", took[10], alone[10])
		if took[10] > 500*time.Millisecond+10*alone[10] { // polling alone would take a second
			t.Errorf("half of the calls took %v, a look into the database takes %v", took[10], alone[10])
		}
		s := web.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage("slow")))
		complete := 0
		for ev, ok := s.nextEvent(); ok; ev, ok = s.nextEvent() {
			if ev.ID == 0 && ev.statusText() != "" {
				complete++
			}
		}
		if text != (complete > 0) {
			t.Errorf("%d pieces of text came as they were written", complete)
		}
		// Without its worker the task waits; a worker that starts later continues it.
		if err := worker.SignalAndWait(syscall.SIGTERM); err != nil {
			t.Errorf("the worker ended with %v:\n%s", err, worker.Output())
		}
		s = web.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage("go")))
		if ev, _ := s.nextEvent(); ev.Body.Status.State != "submitted" {
			t.Errorf("without a worker a task is %+v", ev)
		}
		startProcess(t, t.TempDir(), append(args, "--role", "worker")...)
		facts := s.readFacts()
		if last := facts[len(facts)-1]; last.Body.Status.State != "completed" {
			t.Errorf("it ends with %+v", last)
		}
	})
}

// TestRoll stops a process with a load balancer, a stream and runs: it serves on for a while and asks clients to open
// new connections; then it releases its runs, and readers continue at the other process.
func TestRoll(t *testing.T) {
	onEachFleet(t, func(t *testing.T, _ bool, args []string) {
		model := newSteppedModel(t)
		one := startProcess(t, t.TempDir(), append(args, "--drain-delay", "3s", "--shutdown-timeout", "4s")...)
		two := startProcess(t, t.TempDir(), args...)
		model.createApp(t, one)
		token := one.createToken(t, "acme", "ana", nil)
		s := one.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage("go")))
		first, _ := s.nextEvent()
		// A balancer's connection that is idle when the process begins to stop.
		kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
		defer kept.CloseIdleConnections()
		request := func(method, path string, body any) (status int, closes bool) {
			resp, err := kept.Do(one.newRequest(t, method, path, token, body))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode, resp.Close
		}
		if status, closes := request("GET", "/ready", nil); status != http.StatusOK || closes {
			t.Errorf("before: %d, close %v", status, closes)
		}
		if err := one.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		dbtest.WaitUntil(t, "the process is not ready", func() bool {
			status, closes := request("GET", "/ready", nil)
			return status == http.StatusServiceUnavailable && closes
		})
		if status, closes := request("POST", "/agents/echo", newRPCCall("message:send", newTextMessage("go"))); status != http.StatusOK || !closes {
			t.Errorf("a call while the balancer does not know yet: %d, close %v", status, closes)
		}
		facts := append([]streamEvent{first}, s.readFacts()...)
		if !s.retryHinted || facts[len(facts)-1].Body.Status.State == "completed" {
			t.Errorf("the stream ended with a hint to come back: %v, after %+v", s.retryHinted, facts)
		}
		select {
		case <-one.Ended():
			if code := one.Cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("it ended with %d:\n%s", code, one.Output())
			}
		case <-time.After(time.Minute):
			t.Fatalf("it does not end:\n%s", one.Output())
		}
		close(model.steps[0])
		close(model.steps[1])
		id := first.Body.TaskID
		facts = append(facts, two.openStream(t, token, facts[len(facts)-1].ID, newRPCCall("tasks/subscribe", map[string]any{"id": id})).readFacts()...)
		if last := facts[len(facts)-1]; last.statusText() != "one two" {
			t.Errorf("the task ends with %+v", last)
		}
		for i, ev := range facts[1:] {
			if ev.ID <= facts[i].ID {
				t.Errorf("event %d after %d", ev.ID, facts[i].ID)
			}
		}
	})
}

// TestRedisDown stops Redis and starts it again: readers at another replica miss nothing, each process logs the
// outage once, and text is streamed again.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	target := strings.TrimPrefix(dbtest.RequireRedisURL(t), "redis://")
	target, _, _ = strings.Cut(target, "/")
	proxy := newTCPProxy(t, target)
	args := []string{"--database", dbtest.NewPostgresURL(t), "--redis", "redis://" + proxy.address}
	one, two := startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)
	one.createApp(t, "acme", streamingApp)
	token := one.createToken(t, "acme", "ana", nil)
	both := func(text string) (facts []streamEvent, live bool) {
		t.Helper()
		s := one.openStream(t, token, 0, newRPCCall("message:stream", newTextMessage(text)))
		ev, ok := s.nextEvent()
		if !ok {
			t.Fatalf("no event: %v", s.err)
		}
		there := two.openStream(t, token, 0, newRPCCall("tasks/subscribe", map[string]any{"id": ev.Body.TaskID, "after": 0}))
		for ev, ok := there.nextEvent(); ok; ev, ok = there.nextEvent() {
			if ev.ID > 0 {
				facts = append(facts, ev)
			} else if ev.statusText() != "" {
				live = true
			}
		}
		here := append([]streamEvent{ev}, s.readFacts()...)
		if last := facts[len(facts)-1]; len(here) != len(facts) || last.Body.Status.State != "completed" {
			t.Errorf("got %d events here and %d there, at last %+v", len(here), len(facts), last)
		}
		return facts, live
	}
	if _, live := both("slow"); !live {
		t.Error("with Redis no text came as it was written")
	}
	proxy.disconnect()
	if _, live := both("slow"); live {
		t.Error("without Redis text came as it was written")
	}
	both("go")
	proxy.reconnect()
	for _, p := range []*process{one, two} {
		dbtest.WaitUntil(t, "the end of the outage is logged", func() bool { return strings.Count(p.Output(), "work again") == 1 })
		if n := strings.Count(p.Output(), "are interrupted"); n != 1 {
			t.Errorf("the outage got %d times:\n%s", n, p.Output())
		}
	}
	if _, live := both("slow"); !live {
		t.Error("with Redis back no text came as it was written")
	}
}

// tcpProxy forwards connections to a server and can cut them.
type tcpProxy struct {
	address, target string
	mu              sync.Mutex
	connected       bool
	conns           []net.Conn
	wg              sync.WaitGroup
}

func newTCPProxy(t *testing.T, target string) *tcpProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &tcpProxy{address: l.Addr().String(), target: target, connected: true}
	c.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			c.forwardConn(near)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.disconnect()
		c.wg.Wait()
	})
	return c
}

// forwardConn forwards a connection, or closes it while the proxy is cut.
func (p *tcpProxy) forwardConn(near net.Conn) {
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = near.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.connected {
		_, _ = near.Close(), far.Close()
		return
	}
	p.conns = append(p.conns, near, far)
	p.wg.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
	p.wg.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
}

func (p *tcpProxy) reconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = true
}

func (p *tcpProxy) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = false
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// TestGuessesShared checks that processes count wrong admin secrets of a client together: eight at each would be allowed.
func TestGuessesShared(t *testing.T) {
	onEachFleet(t, func(t *testing.T, _ bool, args []string) {
		args = append(args, "--trusted-proxies", "127.0.0.1")
		fleet := []*process{startProcess(t, t.TempDir(), args...), startProcess(t, t.TempDir(), args...)}
		for attempt := range 10 {
			minute, refused := time.Now().Truncate(time.Minute), 0
			for i := range 16 {
				req := fleet[i%2].newRequest(t, "GET", "/admin/apps", "a-wrong-secret", nil)
				req.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", attempt+1))
				if status, _ := fleet[i%2].sendRequest(t, req); status == http.StatusTooManyRequests {
					refused++
				}
			}
			if !time.Now().Truncate(time.Minute).Equal(minute) {
				continue // the count began anew in the middle
			}
			if refused == 0 || refused > 6 {
				t.Errorf("%d of 16 guesses are refused, want 6", refused)
			}
			return
		}
		t.Error("every attempt met the end of a minute")
	})
}
