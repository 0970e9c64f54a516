// Package contender is the server that Stoa is compared with: the reference A2A library's JSON-RPC server, bare.
// It has no token, no tenant and no database; its tasks live in memory.
package contender

import (
	"context"
	"iter"
	"net/http"
	"runtime/debug"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"stoa/bench/load"
)

// Handler serves one agent at / and 200 on /health.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(executor{})))
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// Target is one blocking call of the contender at base.
func Target(base, text string) (load.Target, error) {
	return load.NewTarget(load.Spec{
		URL:    base + "/",
		Header: map[string]string{"A2A-Version": string(a2a.Version)},
		Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` +
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}}`),
		Want: string(a2a.TaskStateCompleted),
	})
}

// Version is the library's version as linked into this program.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/a2aproject/a2a-go/v2" {
			return m.Version
		}
	}
	return "unknown"
}

// executor answers each message with a task that is updated three times: submitted, working, completed with the answer.
type executor struct{}

func (executor) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		text := ""
		for _, p := range ec.Message.Parts {
			text += p.Text()
		}
		answer := a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart("You said: "+text))
		_ = yield(a2a.NewSubmittedTask(ec, ec.Message), nil) &&
			yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateWorking, nil), nil) &&
			yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCompleted, answer), nil)
	}
}

func (executor) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}
