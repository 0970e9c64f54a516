package a2a_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface/surfacetest"
)

// newClient returns the official client for one version and binding, created from the agent's card.
func newClient(t *testing.T, h *surfacetest.Fixture, agent string, version spec.ProtocolVersion, binding spec.TransportProtocol, token string) *a2aclient.Client {
	t.Helper()
	return newClientAt(t, h, "/a2a/"+agent, version, binding, token)
}

// newClientAt is newClient for the card at a path.
func newClientAt(t *testing.T, h *surfacetest.Fixture, path string, version spec.ProtocolVersion, binding spec.TransportProtocol, token string) *a2aclient.Client {
	t.Helper()
	hc := &http.Client{Transport: surfacetest.BearerTransport(token)}
	resp, err := hc.Get(h.URL + path + "/.well-known/agent-card.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the card: %d %s %v", resp.StatusCode, body, err)
	}
	card, err := a2av0.NewAgentCardParser()([]byte(strings.ReplaceAll(string(body), "http://localhost:8080", h.URL)))
	if err != nil {
		t.Fatal(err)
	}
	var chosen []*spec.AgentInterface
	for _, i := range card.SupportedInterfaces {
		if i.ProtocolVersion == version && i.ProtocolBinding == binding {
			chosen = append(chosen, i)
		}
	}
	card.SupportedInterfaces = chosen
	c, err := a2aclient.NewFactory(
		a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(hc), a2aclient.WithRESTTransport(hc),
		a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: hc}), a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: hc}),
	).CreateFromCard(t.Context(), card)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bindings are the versions and bindings of the protocol.
var bindings = []struct {
	name    string
	version spec.ProtocolVersion
	binding spec.TransportProtocol
}{
	{"1.0 JSON-RPC", "1.0", spec.TransportProtocolJSONRPC}, {"1.0 REST", "1.0", spec.TransportProtocolHTTPJSON},
	{"0.3 JSON-RPC", "0.3", spec.TransportProtocolJSONRPC}, {"0.3 REST", "0.3", spec.TransportProtocolHTTPJSON},
}

func textMessage(text string) *spec.Message {
	return spec.NewMessage(spec.MessageRoleUser, spec.NewTextPart(text))
}

func messageText(m *spec.Message) string {
	if m == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text())
	}
	return b.String()
}

// streamSummary is what a client has read of a stream: the states in order, and the text of the last status.
type streamSummary struct {
	id     spec.TaskID
	states []spec.TaskState
	first  string // kind of the first event
	last   string
	deltas string // texts of the statuses in the state working, joined
	calls  []string
}

func readStream(t *testing.T, events iter.Seq2[spec.Event, error]) (out streamSummary) {
	t.Helper()
	note := func(s spec.TaskStatus) {
		if len(out.states) == 0 || out.states[len(out.states)-1] != s.State {
			out.states = append(out.states, s.State)
		}
		if out.last = messageText(s.Message); s.State == spec.TaskStateWorking {
			out.deltas += out.last
		}
		if s.Message != nil {
			calls, _ := s.Message.Metadata["tool_calls"].([]any)
			for _, c := range calls {
				out.calls = append(out.calls, c.(map[string]any)["function"].(map[string]any)["name"].(string))
			}
		}
	}
	for ev, err := range events {
		if err != nil {
			t.Fatalf("the stream ends with %v", err)
		}
		switch ev := ev.(type) {
		case *spec.Task:
			if out.first == "" {
				out.first = "task"
			}
			out.id = ev.ID
			note(ev.Status)
		case *spec.TaskStatusUpdateEvent:
			note(ev.Status)
		}
		if out.first == "" {
			out.first = "other"
		}
	}
	return out
}

// TestClients runs every method with the official client, in every version and binding.
func TestClients(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, b := range bindings {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, h, "assistant", b.version, b.binding, mintToken(t, h, "acme", "ana "+b.name))
			ctx := t.Context()
			done := sendMessage(t, c, textMessage("hello"))
			if done.Status.State != spec.TaskStateCompleted || messageText(done.Status.Message) != "You said: hello" || done.ContextID == "" || done.Status.Timestamp == nil {
				t.Errorf("send answers %+v", done)
			}
			sent := textMessage("weather Rome")
			if b.version != a2av0.Version { // texts of 0.3 have no media type
				sent.Parts[0].MediaType = "text/markdown"
			}
			streamed := readStream(t, c.SendStreamingMessage(ctx, &spec.SendMessageRequest{Message: sent}))
			want := []spec.TaskState{spec.TaskStateSubmitted, spec.TaskStateWorking, spec.TaskStateCompleted}
			if diff := cmp.Diff(want, streamed.states); diff != "" || streamed.first != "task" || streamed.last != "It is 21 degrees." || streamed.deltas != "Let me see."+streamed.last {
				t.Errorf("the stream has %+v: %s", streamed, diff)
			}
			if diff := cmp.Diff([]string{"calculator", "calculator"}, streamed.calls); diff != "" {
				t.Error("tool calls", diff)
			}
			one := 1
			got, err := c.GetTask(ctx, &spec.GetTaskRequest{ID: streamed.id, HistoryLength: &one})
			if err != nil || len(got.History) != 1 || messageText(got.History[0]) != "It is 21 degrees." || got.Status.State != spec.TaskStateCompleted {
				t.Errorf("get answers %+v, %v", got, err)
			}
			if got, err = c.GetTask(ctx, &spec.GetTaskRequest{ID: streamed.id}); err != nil || len(got.History) < 3 || messageText(got.History[0]) != "weather Rome" || got.History[0].Role != spec.MessageRoleUser {
				t.Errorf("get with the history answers %+v, %v", got, err)
			} else if diff := cmp.Diff(sent.Parts, got.History[0].Parts); diff != "" {
				t.Error("the message in the history", diff)
			}
			checkInputRequired(t, c)
			checkApproval(t, c)
			checkSubscription(t, c)
			file := sendMessage(t, c, textMessage("file"))
			if len(file.Artifacts) != 1 || file.Artifacts[0].Name != "out.txt" {
				t.Errorf("artifacts: %+v", file.Artifacts)
			}
			checkListing(t, c, b.version)
			checkErrors(t, c, done.ID)
		})
	}
}

// sendMessage sends a message and returns its task.
func sendMessage(t *testing.T, c *a2aclient.Client, m *spec.Message) *spec.Task {
	t.Helper()
	result, err := c.SendMessage(t.Context(), &spec.SendMessageRequest{Message: m})
	if err != nil {
		t.Fatal(err)
	}
	task, ok := result.(*spec.Task)
	if !ok {
		t.Fatalf("the answer is a %T", result)
	}
	return task
}

// checkInputRequired answers a question of an agent on the same task.
func checkInputRequired(t *testing.T, c *a2aclient.Client) {
	t.Helper()
	sent := sendMessage(t, c, textMessage("ask"))
	if sent.Status.State != spec.TaskStateInputRequired || messageText(sent.Status.Message) != "Which city?" {
		t.Errorf("the agent asks %+v", sent.Status)
	}
	answer := spec.NewMessageForTask(spec.MessageRoleUser, sent, spec.NewTextPart("Rome"))
	if reported := readStream(t, c.SendStreamingMessage(t.Context(), &spec.SendMessageRequest{Message: answer})); reported.id != sent.ID || reported.first != "task" || reported.last != "You said: Rome" {
		t.Errorf("the answer leads to %+v", reported)
	}
}

// checkApproval decides on a tool call by a message.
func checkApproval(t *testing.T, c *a2aclient.Client) {
	t.Helper()
	pendingApproval := sendMessage(t, c, textMessage("sum"))
	if pendingApproval.Status.State != spec.TaskStateInputRequired {
		t.Fatalf("the tool does not wait: %+v", pendingApproval.Status)
	}
	call := ""
	for _, p := range pendingApproval.Status.Message.Parts {
		if question, ok := p.Data().(map[string]any); ok && question["call_id"] != nil {
			call, _ = question["call_id"].(string)
		}
	}
	yes := map[string]any{"type": "tool_approval", "call_id": call, "decision": "approve"}
	task := sendMessage(t, c, spec.NewMessageForTask(spec.MessageRoleUser, pendingApproval, spec.NewDataPart(yes)))
	if task.Status.State != spec.TaskStateCompleted || messageText(task.Status.Message) != "It is 2." {
		t.Errorf("after the approval the task is %+v", task.Status)
	}
}

// checkSubscription subscribes to a task that needs input until the task is cancelled.
func checkSubscription(t *testing.T, c *a2aclient.Client) {
	t.Helper()
	sent := sendMessage(t, c, textMessage("ask"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	next, end := iter.Pull2(c.SubscribeToTask(ctx, &spec.SubscribeToTaskRequest{ID: sent.ID}))
	defer end()
	first, err, _ := next()
	if task, ok := first.(*spec.Task); !ok || err != nil || task.Status.State != spec.TaskStateInputRequired {
		t.Fatalf("a subscription begins with %+v, %v", first, err)
	}
	cancelled, err := c.CancelTask(t.Context(), &spec.CancelTaskRequest{ID: sent.ID})
	if err != nil || cancelled.Status.State != spec.TaskStateCanceled {
		t.Fatalf("cancel answers %+v, %v", cancelled, err)
	}
	last, err, _ := next()
	if update, ok := last.(*spec.TaskStatusUpdateEvent); !ok || err != nil || update.Status.State != spec.TaskStateCanceled {
		t.Errorf("a cancelled task has %+v, %v", last, err)
	}
	if _, _, more := next(); more {
		t.Error("the subscription goes on after the end")
	}
}

// checkListing reads the task list page by page. The client of version 0.3 has no such method over JSON-RPC.
func checkListing(t *testing.T, c *a2aclient.Client, version spec.ProtocolVersion) {
	t.Helper()
	page, err := c.ListTasks(t.Context(), &spec.ListTasksRequest{PageSize: 2, Status: spec.TaskStateCompleted, IncludeArtifacts: true})
	if version == a2av0.Version && err != nil {
		return
	}
	if err != nil || len(page.Tasks) != 2 || page.NextPageToken == "" || len(page.Tasks[0].Artifacts) != 1 || len(page.Tasks[0].History) != 0 {
		t.Fatalf("list answers %+v, %v", page, err)
	}
	if version != a2av0.Version && (page.TotalSize != 5 || page.PageSize != 2) {
		t.Errorf("list answers %+v", page)
	}
	next, err := c.ListTasks(t.Context(), &spec.ListTasksRequest{PageSize: 2, Status: spec.TaskStateCompleted, IncludeArtifacts: true, PageToken: page.NextPageToken})
	if err != nil || len(next.Tasks) != 2 || next.Tasks[0].ID == page.Tasks[0].ID {
		t.Errorf("the next page is %+v, %v", next, err)
	}
	for ago, want := range map[time.Duration]int{time.Hour: 5, -time.Hour: 0} {
		at := time.Now().Add(-ago)
		got, err := c.ListTasks(t.Context(), &spec.ListTasksRequest{StatusTimestampAfter: &at, Status: spec.TaskStateCompleted})
		if err != nil || len(got.Tasks) != want {
			t.Errorf("%v ago there is %+v, %v", ago, got, err)
		}
	}
}

// checkErrors causes each error that the client library has a value for.
func checkErrors(t *testing.T, c *a2aclient.Client, ended spec.TaskID) {
	t.Helper()
	ctx := t.Context()
	_, notFound := c.GetTask(ctx, &spec.GetTaskRequest{ID: "01a00000-0000-7000-8000-000000000000"})
	_, notCancelable := c.CancelTask(ctx, &spec.CancelTaskRequest{ID: ended})
	var subscribed, sentLate error
	for _, err := range c.SubscribeToTask(ctx, &spec.SubscribeToTaskRequest{ID: ended}) {
		subscribed = err
	}
	late := textMessage("too late")
	late.TaskID = ended
	_, sentLate = c.SendMessage(ctx, &spec.SendMessageRequest{Message: late})
	_, noPush := c.CreateTaskPushConfig(ctx, &spec.PushConfig{TaskID: ended, URL: "https://example.com/told"})
	picture := textMessage("look")
	picture.Parts = append(picture.Parts, &spec.Part{Content: spec.Raw("PNG"), MediaType: "image/png"})
	_, content := c.SendMessage(ctx, &spec.SendMessageRequest{Message: picture})
	negative := -1
	_, params := c.GetTask(ctx, &spec.GetTaskRequest{ID: ended, HistoryLength: &negative})
	for name, tt := range map[string]struct{ got, want error }{
		"unknown task": {notFound, spec.ErrTaskNotFound}, "cancel of an ended task": {notCancelable, spec.ErrTaskNotCancelable},
		"subscribe to an ended task": {subscribed, spec.ErrUnsupportedOperation}, "message to an ended task": {sentLate, spec.ErrUnsupportedOperation},
		"push": {noPush, spec.ErrPushNotificationNotSupported}, "content": {content, spec.ErrUnsupportedContentType}, "negative length": {params, spec.ErrInvalidParams},
	} {
		if !errors.Is(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}

// TestOtherCallers checks that a task is not found for a user of another app and for another user of the same app.
func TestOtherCallers(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, b := range bindings {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			mine := sendMessage(t, newClient(t, h, "assistant", b.version, b.binding, mintToken(t, h, "acme", "ana")), textMessage("ask"))
			for _, token := range []string{mintToken(t, h, "globex", "ana"), h.MintToken(t, "acme", eveSpec)} {
				c := newClient(t, h, "assistant", b.version, b.binding, token)
				if _, err := c.GetTask(t.Context(), &spec.GetTaskRequest{ID: mine.ID}); !errors.Is(err, spec.ErrTaskNotFound) {
					t.Errorf("get by another caller: %v", err)
				}
				answer := spec.NewMessageForTask(spec.MessageRoleUser, mine, spec.NewTextPart("Rome"))
				if _, err := c.SendMessage(t.Context(), &spec.SendMessageRequest{Message: answer}); !errors.Is(err, spec.ErrTaskNotFound) {
					t.Errorf("send by another caller: %v", err)
				}
			}
		})
	}
}
