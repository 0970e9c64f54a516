package faults_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder is what tools act upon, and where callbacks go: POST /NAME is a side effect, and each one that came is kept. A gate holds
// the answer back after the effect has taken place.
type recorder struct {
	URL   string
	gates gates

	mu      sync.Mutex
	effects []effect
}

// effect is one side effect. Key is the step it belongs to, the task and the call, or the id of what a callback tells.
type effect struct {
	name, key string
	at        time.Time
}

func newRecorder(t testing.TB) *recorder {
	t.Helper()
	r := &recorder{}
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.URL = server.URL
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	e := effect{strings.TrimPrefix(req.URL.Path, "/"), cmp.Or(req.Header.Get("Idempotency-Key"), req.Header.Get("Webhook-Id")), time.Now()}
	r.mu.Lock()
	r.effects = append(r.effects, e)
	r.mu.Unlock()
	r.gates.pass(req, e.name)
	_, _ = w.Write([]byte("done " + e.name))
}

// of returns the effects of a name.
func (r *recorder) of(name string) []effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []effect
	for _, e := range r.effects {
		if e.name == name {
			found = append(found, e)
		}
	}
	return found
}

// tasks returns the names of all effects, each once for every task that had it.
func (r *recorder) tasks() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[effect]bool{}
	for _, e := range r.effects {
		task, _, _ := strings.Cut(e.key, "/")
		if one := (effect{name: e.name, key: task}); !seen[one] {
			seen[one] = true
			names = append(names, e.name)
		}
	}
	return names
}

// steps returns how many effects a task's calls had, the most of one call.
func (r *recorder) steps(task string) (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := map[string]int{}
	for _, e := range r.effects {
		if strings.HasPrefix(e.key, task+"/") {
			calls[e.key]++
			most = max(most, calls[e.key])
		}
	}
	return most
}

// gates hold requests by name until the test opens them.
type gates struct {
	mu sync.Mutex
	at map[string]*gate
}

// gate is a place where requests wait. Each that arrives is told.
type gate struct {
	arrived chan struct{}
	open    chan struct{}
	once    sync.Once
}

// close has requests of a name wait from now on.
func (g *gates) close(name string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == nil {
		g.at = map[string]*gate{}
	}
	g.at[name] = &gate{arrived: make(chan struct{}, 1000), open: make(chan struct{})}
	return g.at[name]
}

// pass waits where a gate of this name is closed, at most until the request ends.
func (g *gates) pass(r *http.Request, name string) {
	g.mu.Lock()
	at := g.at[name]
	g.mu.Unlock()
	if at == nil {
		return
	}
	at.arrived <- struct{}{}
	select {
	case <-at.open:
	case <-r.Context().Done():
	}
}

// release lets everyone through, now and later.
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// await waits until a request has come to the gate.
func (g *gate) await(t testing.TB) {
	t.Helper()
	select {
	case <-g.arrived:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody comes to the gate")
	}
}
