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

// WaitTimes are how long a call may wait that is to give up on a task at work: on a machine that is loaded, work begins late.
var WaitTimes = []time.Duration{50 * time.Millisecond, time.Second, 15 * time.Second}

// WaitForWorking waits until n tasks are at work, as the log says.
func (h *Fixture) WaitForWorking(t testing.TB, n int) {
	t.Helper()
	at := 0
	for end := time.Now().Add(30 * time.Second); at != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d tasks are at work, want %d", at, n)
		}
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&at) }, "SELECT COUNT(*) FROM task WHERE state = 'working'")
		must(t, h.DB.Platform().Do(t.Context(), &b))
	}
}

// NewHaltingModel is a house's configuration whose agent says "one ", halts until goOn is called, and says "two": what a client has
// heard before, it heard while the model still wrote. After half a minute the model goes on by itself; goOn reports whether
// it had not.
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
