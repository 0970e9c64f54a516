package surfacetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"stoa/tenancy/db"
)

// WaitTimes are timeouts for tests in which a call must give up while its task is in progress. A test tries them in
// order, since on a loaded machine a task may start late.
var WaitTimes = []time.Duration{50 * time.Millisecond, time.Second, 15 * time.Second}

// WaitForWorking waits until exactly n tasks are in the state working in the database.
func (f *Fixture) WaitForWorking(t testing.TB, n int) {
	t.Helper()
	at := 0
	for end := time.Now().Add(time.Minute); at != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d tasks are at work, want %d", at, n)
		}
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&at) }, "SELECT COUNT(*) FROM task WHERE state = 'working'")
		must(t, f.DB.Platform().Do(t.Context(), &b))
	}
}

// NewHaltingModel returns an app configuration whose model sends "one ", halts until resume is called, and then
// sends "two". What a client receives before that, it received while the model was still writing. The model resumes
// by itself after 30 seconds; resume reports whether that had not happened yet.
func NewHaltingModel(t testing.TB) (config string, resume func() bool) {
	t.Helper()
	halted := make(chan struct{})
	let := sync.OnceFunc(func() { close(halted) })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"one "}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-halted
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"two"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	enough := time.AfterFunc(30*time.Second, let)
	t.Cleanup(func() {
		enough.Stop()
		let()
		srv.Close()
	})
	config = `
llms: {m: {provider: openai, model: m, base_url: "` + srv.URL + `", api_key: k}}
agents: {assistant: {llm: m}}
`
	return config, func() bool {
		inTime := enough.Stop()
		let()
		return inTime
	}
}
