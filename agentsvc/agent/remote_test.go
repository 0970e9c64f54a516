package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
)

// fakeExecutor is an agent on another server that does what the last word of a message says.
type fakeExecutor struct {
	mu        sync.Mutex
	got       []*a2a.Message
	headers   []http.Header
	cancelled chan struct{}
}

func (f *fakeExecutor) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		f.mu.Lock()
		f.got = append(f.got, ec.Message)
		f.mu.Unlock()
		text := ""
		for _, p := range ec.Message.Parts {
			text += p.Text()
		}
		if strings.HasSuffix(text, "message") {
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("no task")), nil)
			return
		}
		say := func(state a2a.TaskState, words string) bool {
			var m *a2a.Message
			if words != "" {
				m = a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart(words))
			}
			return yield(a2a.NewStatusUpdateEvent(ec, state, m), nil)
		}
		if ec.StoredTask == nil && !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		if !say(a2a.TaskStateWorking, "") {
			return
		}
		words := strings.Fields(text)
		switch words[len(words)-1] {
		case "ask":
			say(a2a.TaskStateInputRequired, "Which one?")
		case "refuse":
			say(a2a.TaskStateRejected, "No.")
		case "credential":
			say(a2a.TaskStateAuthRequired, "Who are you?")
		case "fail":
			say(a2a.TaskStateFailed, "canary of the inside")
		case "artifact", "later":
			art := a2a.NewArtifactEvent(ec, a2a.NewTextPart("half "))
			art.Artifact.Name = "out.txt"
			more := a2a.NewArtifactUpdateEvent(ec, art.Artifact.ID, a2a.NewTextPart("whole"))
			more.Append, more.LastChunk = true, true
			ok := yield(art, nil)
			if text != "artifact" {
				time.Sleep(150 * time.Millisecond) // until a polling client has half of it
			}
			_ = ok && yield(more, nil) && say(a2a.TaskStateCompleted, "")
		case "pieces": // text in pieces
			_ = say(a2a.TaskStateWorking, "One ") && say(a2a.TaskStateWorking, "two ") && say(a2a.TaskStateWorking, "three.") && say(a2a.TaskStateCompleted, "One two three.")
		case "growth": // each message repeats the text before it
			_ = say(a2a.TaskStateWorking, "One") && say(a2a.TaskStateWorking, "One two") && say(a2a.TaskStateCompleted, "One two three.")
		case "progress": // a text that is not the answer
			_ = say(a2a.TaskStateWorking, "Looking it up.") && say(a2a.TaskStateCompleted, "It is blue.")
		case "typed": // an artifact, word by word
			art := a2a.NewArtifactEvent(ec, a2a.NewTextPart("w0 "))
			ok := yield(art, nil)
			for i := 1; ok && i < 100; i++ {
				more := a2a.NewArtifactUpdateEvent(ec, art.Artifact.ID, a2a.NewTextPart(fmt.Sprintf("w%d ", i)))
				more.Append = true
				ok = yield(more, nil)
			}
			_ = ok && say(a2a.TaskStateCompleted, "")
		case "text", "files": // an artifact of 2 or 5 MiB
			piece, pieces := a2a.NewTextPart(strings.Repeat("a", 1<<20)), 2
			if text == "files" {
				piece, pieces = a2a.NewRawPart(bytes.Repeat([]byte("a"), 1<<20)), 5
			}
			art := a2a.NewArtifactEvent(ec, piece)
			ok := yield(art, nil)
			for i := 1; ok && i < pieces; i++ { // few and large: the other server encodes the whole artifact each time
				more := a2a.NewArtifactUpdateEvent(ec, art.Artifact.ID, piece)
				more.Append = true
				ok = yield(more, nil)
			}
			<-f.cancelled
		case "wait":
			<-f.cancelled
			say(a2a.TaskStateCompleted, "You said: "+text)
		case "slow":
			if say(a2a.TaskStateWorking, "Wait") {
				<-f.cancelled
			}
		default:
			say(a2a.TaskStateCompleted, "You said: "+text)
		}
	}
}

func (f *fakeExecutor) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		close(f.cancelled)
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

// a2aBinding is a protocol binding of a server.
type a2aBinding struct {
	name      string
	streaming bool
	handler   func(h a2asrv.RequestHandler) http.Handler
	card      func(url string, streaming bool) any
}

func newCard(binding a2a.TransportProtocol) func(string, bool) any {
	return func(url string, streaming bool) any {
		return &a2a.AgentCard{
			Name: "far", Capabilities: a2a.AgentCapabilities{Streaming: streaming},
			SupportedInterfaces: []*a2a.AgentInterface{{URL: url, ProtocolBinding: binding, ProtocolVersion: a2a.Version}},
		}
	}
}

func oldCard(binding string) func(string, bool) any {
	return func(url string, streaming bool) any {
		return map[string]any{
			"name": "far", "protocolVersion": "0.3.0", "url": url, "preferredTransport": binding, "capabilities": map[string]any{"streaming": streaming},
			"defaultInputModes": []string{}, "defaultOutputModes": []string{}, "skills": []any{}, "version": "1", "description": "",
		}
	}
}

// protoCard has security requirements in the form of A2A 1.0's Protocol Buffers.
func protoCard(url string, streaming bool) any {
	required := []any{map[string]any{"schemes": map[string]any{"bearer": map[string]any{"list": []string{}}}}}
	return map[string]any{
		"name": "far", "capabilities": map[string]any{"streaming": streaming}, "securityRequirements": required,
		"skills":              []any{map[string]any{"id": "s", "name": "s", "tags": []string{}, "securityRequirements": required}},
		"supportedInterfaces": []any{map[string]any{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}},
	}
}

var a2aBindings = []a2aBinding{
	{"1.0 JSON-RPC with requirements", true, func(h a2asrv.RequestHandler) http.Handler { return a2asrv.NewJSONRPCHandler(h) }, protoCard},
	{"1.0 JSON-RPC", true, func(h a2asrv.RequestHandler) http.Handler { return a2asrv.NewJSONRPCHandler(h) }, newCard(a2a.TransportProtocolJSONRPC)},
	{"1.0 JSON-RPC, no streams", false, func(h a2asrv.RequestHandler) http.Handler { return a2asrv.NewJSONRPCHandler(h) }, newCard(a2a.TransportProtocolJSONRPC)},
	{"1.0 JSON-RPC, a card of Stoa", true, func(h a2asrv.RequestHandler) http.Handler { return a2asrv.NewJSONRPCHandler(h) }, snakeCard("1.0")},
	{"0.3 JSON-RPC, a card of Stoa", true, func(h a2asrv.RequestHandler) http.Handler { return a2av0.NewJSONRPCHandler(h) }, snakeCard("0.3.0")},
	{"1.0 REST", true, func(h a2asrv.RequestHandler) http.Handler { return a2asrv.NewRESTHandler(h) }, newCard(a2a.TransportProtocolHTTPJSON)},
	{"0.3 JSON-RPC", true, func(h a2asrv.RequestHandler) http.Handler { return a2av0.NewJSONRPCHandler(h) }, oldCard("JSONRPC")},
	{"0.3 JSON-RPC, no streams", false, func(h a2asrv.RequestHandler) http.Handler { return a2av0.NewJSONRPCHandler(h) }, oldCard("JSONRPC")},
	{"0.3 REST", true, func(h a2asrv.RequestHandler) http.Handler { return a2av0.NewRESTHandler(h) }, oldCard("HTTP+JSON")},
}

// snakeCard returns a card in the form of Stoa's own cards.
func snakeCard(version string) func(url string, streaming bool) any {
	return func(url string, streaming bool) any {
		return map[string]any{
			"name": "far", "description": "A remote agent", "url": url, "version": "1.0.0", "protocol_version": version, "preferred_transport": "jsonrpc",
			"default_input_modes": []string{"text/plain"}, "default_output_modes": []string{"text/plain"},
			"capabilities": map[string]any{"streaming": streaming, "push_notifications": false, "state_transition_history": false}, "skills": []any{},
		}
	}
}

// startServer starts a server and returns the agent behind it and its address.
func startServer(t *testing.T, w a2aBinding) (*fakeExecutor, string) {
	t.Helper()
	f := &fakeExecutor{cancelled: make(chan struct{})}
	handler := w.handler(a2asrv.NewHandler(f, a2asrv.WithLogger(slog.New(slog.DiscardHandler))))
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.headers = append(f.headers, r.Header.Clone())
		f.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "agent-card.json") {
			_ = json.NewEncoder(rw).Encode(w.card(srv.URL, w.streaming))
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	return f, srv.URL
}

// newConnections makes a connection for each request, so that none is left open after a test.
var newConnections = &http.Transport{DisableKeepAlives: true}

func newRemote(t *testing.T, o agent.RemoteOptions) *agent.Remote {
	t.Helper()
	o.Name = "far"
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: newConnections}
	}
	a, err := agent.NewRemote(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRemote calls an agent on another server over every binding: its messages, artifacts and questions become those of
// the turn.
func TestRemote(t *testing.T) {
	t.Parallel()
	for _, w := range a2aBindings {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f, url := startServer(t, w)
			a := newRemote(t, agent.RemoteOptions{URL: url, Headers: map[string]string{"Authorization": "Bearer x"}})
			for text, want := range map[string][]string{
				"hello":      {"completed You said: hello"},
				"message":    {"completed no task"},
				"ask":        {"input_required Which one?"},
				"refuse":     {"rejected No."},
				"credential": {"auth_required Who are you?"},
			} {
				if diff := cmp.Diff(want, formatFramed(collectFacts(t, a, newInvocation(text), 0))); diff != "" {
					t.Errorf("%s:\n%s", text, diff)
				}
			}
			for _, text := range []string{"artifact", "later"} {
				got := collectFacts(t, a, newInvocation(text), 0)
				last := got[len(got)-1]
				if last.Status == nil || last.Status.Message.Text() != "half whole" {
					t.Errorf("an answer of artifacts: %q", formatFramed(got))
				}
				complete := agentsvc.Task{}
				for i, ev := range got {
					ev.Seq = int64(i + 1)
					complete.ApplyEvent(ev)
				}
				if len(complete.Artifacts) != 1 || complete.Artifacts[0].Name != "out.txt" || (agentsvc.Message{Parts: complete.Artifacts[0].Parts}).Text() != "half whole" {
					t.Errorf("artifacts %+v", complete.Artifacts)
				}
			}
			_, err := runToLines(t.Context(), a, newInvocation("fail"))
			if !errors.Is(err, agentsvc.CodeInvalid) || err.Error() != "the task of the remote agent far failed" {
				t.Errorf("failed with %v", err)
			}
			for _, h := range f.headers {
				if h.Get("Authorization") != "Bearer x" {
					t.Errorf("a request without its header: %v", h)
				}
			}
		})
	}
}

// TestRemoteConversation checks that the next turn continues in the remote context, with the task that waits, and that
// each attempt of a turn sends the same message id.
func TestRemoteConversation(t *testing.T) {
	t.Parallel()
	f, url := startServer(t, a2aBindings[0])
	a := newRemote(t, agent.RemoteOptions{URL: url})
	inv := newInvocation("ask")
	for _, text := range []string{"the red one", "ask", "no"} {
		got := collectFacts(t, a, inv, 0)
		inv.Turn++
		inv.Conversation = append(inv.Conversation, agentsvc.Entry{Message: got[len(got)-1].Status.Message}, newUserEntry(text))
	}
	collectFacts(t, a, inv, 0)
	if len(f.got) != 4 {
		t.Fatalf("%d messages", len(f.got))
	}
	ask, red, again, no := f.got[0], f.got[1], f.got[2], f.got[3]
	if red.TaskID == "" || red.TaskID != ask.TaskID && ask.TaskID != "" || red.ContextID == "" || again.ContextID != red.ContextID {
		t.Errorf("answered task %q in context %q, asked in %q", red.TaskID, red.ContextID, again.ContextID)
	}
	if again.TaskID == red.TaskID || no.TaskID == "" || no.TaskID == red.TaskID {
		t.Errorf("the next task: asked in %q, answered to %q", again.TaskID, no.TaskID)
	}
	if len(no.Parts) != 1 || no.Parts[0].Text() != "no" {
		t.Errorf("sent %+v, want what is new", no.Parts)
	}
	if _, err := runToLines(t.Context(), a, inv); err == nil || err.Error() != "the remote agent far could not be called: it refuses the message" {
		t.Errorf("a message to a task that has ended: %v", err)
	}
	for range 2 {
		collectFacts(t, a, newInvocation("hello"), 0)
	}
	if first, second := f.got[4].ID, f.got[5].ID; first != second || first == no.ID {
		t.Errorf("message ids %s, then %s in the other attempt, and %s in another turn", first, second, no.ID)
	}
}

// TestRemoteStreams checks that text of a working task is shown as it arrives, that the final answer replaces different
// text, and that an artifact sent word by word is not recorded word by word.
func TestRemoteStreams(t *testing.T) {
	t.Parallel()
	var typed strings.Builder
	for i := range 100 {
		fmt.Fprintf(&typed, "w%d ", i)
	}
	for _, w := range a2aBindings {
		if !w.streaming {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			_, url := startServer(t, w)
			for text, c := range map[string]struct {
				chunks, answer string
				same           bool // the chunks are the beginning of the answer
			}{
				"pieces":   {"One |two |three.", "One two three.", true},
				"growth":   {"One| two", "One two three.", true},
				"progress": {"Looking it up.", "It is blue.", false},
				"typed":    {strings.ReplaceAll(strings.TrimSpace(typed.String()), " ", " |") + " ", typed.String(), true},
			} {
				var chunks []string
				var id agentsvc.MessageID
				artifacts, offset := 0, 0
				var end *agentsvc.Message
				for ev, err := range newRemote(t, agent.RemoteOptions{URL: url}).Run(t.Context(), newInvocation(text)) {
					switch {
					case err != nil:
						t.Fatal(err)
					case ev.Chunk != nil:
						if ev.Chunk.Offset != offset || id != "" && id != ev.Chunk.Message {
							t.Errorf("%s: chunk %+v at %d of %s", text, ev.Chunk, offset, id)
						}
						id, offset = ev.Chunk.Message, offset+len(ev.Chunk.Text)
						chunks = append(chunks, ev.Chunk.Text)
					case ev.Artifact != nil:
						artifacts++
					case ev.Status != nil:
						end = ev.Status.Message
					}
				}
				if got := strings.Join(chunks, "|"); got != c.chunks || end.Text() != c.answer || (end.ID == id) != c.same {
					t.Errorf("%s: %q, then %q (of the same message: %v)", text, got, end.Text(), end.ID == id)
				}
				if text == "typed" && artifacts != 1 {
					t.Errorf("%d facts of one artifact", artifacts)
				}
			}
			for ev := range newRemote(t, agent.RemoteOptions{URL: url, CompleteOnly: true}).Run(t.Context(), newInvocation("pieces")) {
				if ev.Chunk != nil {
					t.Error("a chunk, although none is wanted")
				}
			}
		})
	}
}

// TestRemoteTooSlow checks that the remote task is cancelled after a timeout and when the task here is cancelled, over
// every binding.
func TestRemoteTooSlow(t *testing.T) {
	t.Parallel()
	for _, w := range a2aBindings {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			testTooSlow(t, w)
		})
	}
}

func testTooSlow(t *testing.T, w a2aBinding) {
	for _, how := range []string{"time", "cancel", "drain"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f, url := startServer(t, w)
			o := agent.RemoteOptions{URL: url}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var why error
			switch how {
			case "time":
				o.Timeout = time.Second
			case "cancel":
				why = &agentsvc.CallCancelledError{}
			default:
				why = errors.New("drained")
			}
			var err error
			for _, err = range newRemote(t, o).Run(ctx, newInvocation("slow")) {
				if why != nil { // the remote task is working
					cancel(why)
				}
			}
			// The other server works on the message: a retry would have the work done twice.
			late := &agent.RemoteError{Agent: "far", Reason: "did not answer within 1s"}
			if err == nil || how == "time" && cmp.Diff(error(late), err) != "" {
				t.Errorf("ended with %v", err)
			}
			if how == "drain" {
				select {
				case <-f.cancelled:
					t.Error("cancelled, although another process continues")
				default:
					close(f.cancelled)
				}
				return
			}
			select {
			case <-f.cancelled:
			case <-time.After(time.Minute):
				t.Error("the other side got no request")
				close(f.cancelled)
			}
		})
	}
}

// TestRemoteBounds calls an agent whose answer is longer than one may be: the turn fails, and the remote task is cancelled.
func TestRemoteBounds(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"text":  "the remote agent far sent more than 1 MiB of text, which one answer may have",
		"files": "the remote agent far sent more than 4 MiB of text, files and events, which one answer may have",
	} {
		t.Run(message, func(t *testing.T) {
			f, url := startServer(t, a2aBindings[0]) // counted after decoding, alike for all
			var err error
			size := int64(0)
			o := agent.RemoteOptions{URL: url, MaxBytes: 1 << 20, Timeout: 10 * time.Minute}
			for ev, failed := range newRemote(t, o).Run(t.Context(), newInvocation(message)) {
				size, err = size+ev.ByteSize(), failed
			}
			if err == nil || err.Error() != want || !errors.Is(err, agentsvc.CodeInvalid) {
				t.Errorf("ended with %v, want %s", err, want)
			}
			if size > 5<<20 {
				t.Errorf("%d KiB were yielded", size>>10)
			}
			select {
			case <-f.cancelled:
			case <-time.After(time.Minute):
				t.Error("the other side got no request to cancel")
				close(f.cancelled)
			}
		})
	}
}

// TestRemoteLost checks that a turn without its lease sends no message.
func TestRemoteLost(t *testing.T) {
	t.Parallel()
	f, url := startServer(t, a2aBindings[0])
	ctx, lose := context.WithCancelCause(t.Context())
	inv := newInvocation("hello")
	inv.Lease.Confirm = func(context.Context) { lose(agentsvc.ErrLeaseLost) }
	if _, err := runToLines(ctx, newRemote(t, agent.RemoteOptions{URL: url}), inv); !errors.Is(err, context.Canceled) || len(f.got) > 0 {
		t.Errorf("ended with %v after %d messages", err, len(f.got))
	}
}

// TestRemoteHeaders checks that headers are sent to the configured server and not to one that its card names.
func TestRemoteHeaders(t *testing.T) {
	t.Parallel()
	elsewhere, url := startServer(t, a2aBindings[0])
	card := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "canary" {
			t.Error("the named server is not shown the header")
		}
		_ = json.NewEncoder(w).Encode(newCard(a2a.TransportProtocolJSONRPC)(url, true))
	}))
	t.Cleanup(card.Close)
	headers := map[string]string{"X-Key": "canary"}
	collectFacts(t, newRemote(t, agent.RemoteOptions{CardURL: card.URL + "/card.json", Headers: headers}), newInvocation("hello"), 0)
	for _, h := range elsewhere.headers {
		if h.Get("X-Key") != "" {
			t.Error("another server was shown the header")
		}
	}
	raw, err := json.Marshal(newCard(a2a.TransportProtocolJSONRPC)(url, true))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.headers = nil
	collectFacts(t, newRemote(t, agent.RemoteOptions{Card: raw, Headers: headers}), newInvocation("hello"), 0)
	if len(elsewhere.headers) != 1 || elsewhere.headers[0].Get("X-Key") != "canary" {
		t.Errorf("with the card at hand: %v", elsewhere.headers)
	}
	for server, want := range map[string]string{url: "canary", card.URL: ""} {
		elsewhere.headers = nil
		collectFacts(t, newRemote(t, agent.RemoteOptions{URL: server, Card: raw, Headers: headers}), newInvocation("hello"), 0)
		if len(elsewhere.headers) != 1 || elsewhere.headers[0].Get("X-Key") != want {
			t.Errorf("with the card at hand and the server %s: %v, want %q", server, elsewhere.headers, want)
		}
	}
}

// TestRemoteRetry checks which failures of a call may be retried: those after which the other server does not work on
// the message as far as is known here. Each attempt sends the same message id.
func TestRemoteRetry(t *testing.T) {
	t.Parallel()
	const sent, read = "sent", "read" // the requests that fail: the message, or the card
	for _, w := range a2aBindings {
		for name, c := range map[string]struct {
			fails  string
			status int // 0: the connection breaks, -1: no answer in time
			want   agent.RemoteError
		}{
			"card 503":      {read, 503, agent.RemoteError{Reason: "answered 503", RetryAfter: 7 * time.Second, Retryable: true}},
			"card broken":   {read, 0, agent.RemoteError{Reason: "could not be called: the connection failed", Retryable: true}},
			"card too late": {read, -1, agent.RemoteError{Reason: "did not answer within 2s", Retryable: true}},
			"busy":          {sent, 429, agent.RemoteError{Reason: "answered 429", RetryAfter: 7 * time.Second, Retryable: true}},
			"500":           {sent, 500, agent.RemoteError{Reason: "answered 500", RetryAfter: 7 * time.Second, Retryable: true}},
			"broken":        {sent, 0, agent.RemoteError{Reason: "could not be called: the connection failed", Retryable: true}},
			"too late":      {sent, -1, agent.RemoteError{Reason: "did not answer within 2s", Retryable: true}},
		} {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f, url := startServer(t, w)
				client := &http.Client{Transport: failingTransport{fail: (c.fails == read), status: c.status}}
				o := agent.RemoteOptions{URL: url, HTTP: client}
				if c.status < 0 {
					o.Timeout = 2 * time.Second // not less: a busy machine must have sent the message by then
				}
				c.want.Agent = "far"
				_, err := runToLines(t.Context(), newRemote(t, o), newInvocation("hello"))
				if diff := cmp.Diff(error(&c.want), err); diff != "" {
					t.Fatal(diff)
				}
				collectFacts(t, newRemote(t, agent.RemoteOptions{URL: url}), newInvocation("hello"), 0)
				if c.fails == sent && (len(f.got) != 2 || f.got[0].ID != f.got[1].ID) {
					t.Errorf("the server got %d messages", len(f.got))
				}
			})
		}
	}
	for name, status := range map[string]int{"refused": 400, "unknown": 404, "method": 501} {
		t.Run(name, func(t *testing.T) {
			_, url := startServer(t, a2aBindings[1])
			o := agent.RemoteOptions{URL: url, HTTP: &http.Client{Transport: failingTransport{status: status}}}
			if _, err := runToLines(t.Context(), newRemote(t, o), newInvocation("hello")); !errors.Is(err, agentsvc.CodeInvalid) {
				t.Errorf("%d: %v", status, err)
			}
		})
	}
	want := &agent.RemoteError{Agent: "far", Reason: "could not be called: the connection was refused", Retryable: true}
	if _, err := runToLines(t.Context(), newRemote(t, agent.RemoteOptions{URL: "http://127.0.0.1:1"}), newInvocation("hello")); cmp.Diff(error(want), err) != "" {
		t.Errorf("nothing listens: %v", err)
	}
}

// failingTransport carries out each request of one kind, and then loses the answer: the status is returned instead, or
// an error for 0, or nothing before the context ends for -1.
type failingTransport struct {
	fail   bool // requests that read (GET), else those that send
	status int
}

func (f failingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := newConnections.RoundTrip(req)
	if err != nil || f.fail != (req.Method == http.MethodGet) {
		return resp, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	switch {
	case f.status == 0:
		return nil, io.ErrUnexpectedEOF
	case f.status < 0:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{
		StatusCode: f.status, Status: http.StatusText(f.status), Header: http.Header{"Retry-After": {"7"}},
		Body: io.NopCloser(strings.NewReader("canary")), Request: req,
	}, nil
}

// TestRemoteInterrupted checks that a turn goes on with the task when the stream breaks and requests for the task fail
// for a while: the message is not sent again.
func TestRemoteInterrupted(t *testing.T) {
	t.Parallel()
	for _, w := range a2aBindings {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f, url := startServer(t, w)
			cut := &cuttingTransport{cut: func() { close(f.cancelled) }}
			got := collectFacts(t, newRemote(t, agent.RemoteOptions{URL: url, HTTP: &http.Client{Transport: cut}}), newInvocation("wait"), 0)
			if last := got[len(got)-1]; last.Status == nil || last.Status.Message.Text() != "You said: wait" || len(f.got) != 1 || !cut.done {
				t.Errorf("%q after %d messages", formatFramed(got), len(f.got))
			}
		})
	}
}

// cuttingTransport breaks the answer to the first message after it named the task, and answers the next request 503.
type cuttingTransport struct {
	cut        func()
	sent, done bool
}

func (c *cuttingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.sent && !c.done {
		c.done = true
		return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	resp, err := newConnections.RoundTrip(req)
	if err == nil && !c.sent && strings.Contains(resp.Header.Get("Content-Type"), "event-stream") {
		c.sent = true
		resp.Body = &cutBody{ReadCloser: resp.Body, cut: c.cut}
	} else if err == nil && !c.sent && req.Method == http.MethodPost {
		c.sent = true
		c.cut()
	}
	return resp, err
}

// cutBody fails after the text of a working task.
type cutBody struct {
	io.ReadCloser
	cut  func()
	seen []byte
}

func (b *cutBody) Read(p []byte) (int, error) {
	if strings.Contains(strings.ToLower(string(b.seen)), "working") && bytes.HasSuffix(b.seen, []byte("\n\n")) {
		b.cut()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:1])
	b.seen = append(b.seen, p[:n]...)
	return n, err
}

// TestRemoteAbsent checks servers that do not speak A2A or are not permitted. Their texts are not shown.
func TestRemoteAbsent(t *testing.T) {
	t.Parallel()
	answers := func(status int, body string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	for name, c := range map[string]struct{ url, want string }{
		"not found": {answers(404, "canary"), "its server answered 404"},
		"no card":   {answers(200, "<canary>"), "it is no agent card"},
		"no way":    {answers(200, `{"name":"canary","supportedInterfaces":[{"url":"http://x","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`), "offers no supported interface"},
		"too long":  {answers(200, `{"name":"`+strings.Repeat("x", 1<<20)+`"}`), "it is no agent card"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runToLines(t.Context(), newRemote(t, agent.RemoteOptions{URL: c.url}), newInvocation("hello"))
			if !errors.Is(err, agentsvc.CodeInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	for _, o := range []agent.RemoteOptions{{URL: "ftp://x"}, {URL: "nowhere"}, {}, {Card: []byte("x")}, {CardURL: "//x"}} {
		if _, err := agent.NewRemote(o); err == nil {
			t.Errorf("%+v is taken for an address", o)
		}
	}
}
