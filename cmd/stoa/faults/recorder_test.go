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

// recorder is the server that tools act on and that callbacks go to: POST /NAME is a side effect, and each one is
// kept. A barrier delays the response until after the effect.
type recorder struct {
	URL      string
	barriers requestBarriers

	mu      sync.Mutex
	effects []effect
}

// effect is one side effect. Key is the step it belongs to (task and call), or the id of a callback.
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
	r.barriers.waitIfBlocked(req, e.name)
	_, _ = w.Write([]byte("done " + e.name))
}

// effectsNamed returns the effects of a name.
func (r *recorder) effectsNamed(name string) []effect {
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

// listTaskEffects returns the names of all effects, each once for every task that had it.
func (r *recorder) listTaskEffects() (names []string) {
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

// maxEffectsPerCall returns the largest number of effects of one call of a task.
func (r *recorder) maxEffectsPerCall(task string) (atMost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := map[string]int{}
	for _, e := range r.effects {
		if strings.HasPrefix(e.key, task+"/") {
			calls[e.key]++
			atMost = max(atMost, calls[e.key])
		}
	}
	return atMost
}

// requestBarriers block requests by name until the test releases them.
type requestBarriers struct {
	mu     sync.Mutex
	byName map[string]*requestBarrier
}

// requestBarrier blocks requests and signals each that arrives.
type requestBarrier struct {
	arrived  chan struct{}
	released chan struct{}
	once     sync.Once
}

// blockRequests makes requests of a name wait from now on.
func (b *requestBarriers) blockRequests(name string) *requestBarrier {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byName == nil {
		b.byName = map[string]*requestBarrier{}
	}
	b.byName[name] = &requestBarrier{arrived: make(chan struct{}, 1000), released: make(chan struct{})}
	return b.byName[name]
}

// waitIfBlocked waits while requests of this name are blocked, at most until the request ends.
func (b *requestBarriers) waitIfBlocked(r *http.Request, name string) {
	b.mu.Lock()
	at := b.byName[name]
	b.mu.Unlock()
	if at == nil {
		return
	}
	at.arrived <- struct{}{}
	select {
	case <-at.released:
	case <-r.Context().Done():
	}
}

// releaseRequests releases all requests, waiting and later ones.
func (b *requestBarrier) releaseRequests() { b.once.Do(func() { close(b.released) }) }

// waitForRequest waits until a request has arrived.
func (b *requestBarrier) waitForRequest(t testing.TB) {
	t.Helper()
	select {
	case <-b.arrived:
	case <-time.After(time.Minute):
		t.Fatal("no request reaches the gate")
	}
}
