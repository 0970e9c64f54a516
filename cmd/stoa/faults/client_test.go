package faults_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// client calls one process, or a load balancer, as one user of one app.
type client struct {
	baseURL, token string
	http           *http.Client
}

// response is a complete response.
type response struct {
	status int
	header http.Header
	body   []byte
}

// doRequest sends body as JSON, nothing if it is nil. An error means that no complete response arrived.
func (c *client) doRequest(ctx context.Context, method, path string, body any, header ...string) (response, error) {
	resp, err := c.openRequest(ctx, method, path, body, header...)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, raw}, err
}

func (c *client) openRequest(ctx context.Context, method, path string, body any, header ...string) (*http.Response, error) {
	raw, isRaw := body.(json.RawMessage)
	if body != nil && !isRaw {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.http.Do(req)
}

// responseError is a response that is not the expected one.
type responseError struct {
	status     int
	rpcCode    int
	retryAfter string // the Retry-After header
	body       string
}

func (e *responseError) Error() string { return fmt.Sprintf("HTTP %d: %.500s", e.status, e.body) }

// statusOf returns the HTTP status of err, 0 if it has none.
func statusOf(err error) int {
	var r *responseError
	if errors.As(err, &r) {
		return r.status
	}
	return 0
}

// decodeInto decodes a successful response into v and makes any other an error.
func (r response) decodeInto(v any) error {
	if r.status/100 != 2 {
		return &responseError{status: r.status, retryAfter: r.header.Get("Retry-After"), body: string(r.body)}
	}
	var rpc struct {
		Result json.RawMessage
		Error  *struct{ Code int }
	}
	if err := json.Unmarshal(r.body, &rpc); err == nil && rpc.Error != nil {
		return &responseError{status: r.status, rpcCode: rpc.Error.Code, body: string(r.body)}
	}
	if rpc.Result != nil {
		r.body = rpc.Result
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(r.body, v)
}

// requestJSON is doRequest with the response decoded.
func (c *client) requestJSON(ctx context.Context, method, path string, body, into any, header ...string) error {
	a, err := c.doRequest(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	return a.decodeInto(into)
}

// task is a task in a response.
type task struct {
	TaskID    string `json:"task_id"`
	ContextID string `json:"context_id"`
	Status    struct {
		State   string
		Message *struct {
			Parts    []struct{ Text string }
			Metadata map[string]any
		}
	}
	Approvals []approval
}

// approval is a tool call that waits for a decision.
type approval struct {
	CallID string `json:"call_id"`
	Kind   string
}

// lastText returns the text of the task's last status.
func (t task) lastText() string {
	var b strings.Builder
	if t.Status.Message != nil {
		for _, p := range t.Status.Message.Parts {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

var terminalStates = []string{"completed", "failed", "cancelled", "rejected"}

func (t task) isTerminal() bool { return slices.Contains(terminalStates, t.Status.State) }

// message is a message of a user.
type message struct {
	agent, text, id, task, context string
	background                     bool // the request does not wait for the answer
}

func (m message) rpcParams() map[string]any {
	msg := map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "text": m.text}}}
	for name, value := range map[string]string{"message_id": m.id, "task_id": m.task, "context_id": m.context} {
		if value != "" {
			msg[name] = value
		}
	}
	return map[string]any{"message": msg, "configuration": map[string]any{"blocking": !m.background}}
}

func (m message) agentPath() string {
	if m.agent == "" {
		return "/agents/assistant"
	}
	return "/agents/" + m.agent
}

func rpcCall(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
}

// sendMessage sends a message and returns the task: settled, unless the message is for the background.
func (c *client) sendMessage(ctx context.Context, m message) (t task, err error) {
	err = c.requestJSON(ctx, http.MethodPost, m.agentPath(), rpcCall("message:send", m.rpcParams()), &t)
	return t, err
}

// getTask returns the present state of a task.
func (c *client) getTask(ctx context.Context, agent, id string) (t task, err error) {
	err = c.requestJSON(ctx, http.MethodPost, message{agent: agent}.agentPath(), rpcCall("tasks/get", map[string]any{"id": id}), &t)
	return t, err
}

// listApprovals returns the tool calls of a task that wait for a decision.
func (c *client) listApprovals(ctx context.Context, t task) ([]approval, error) {
	var l struct{ Tasks []task }
	err := c.requestJSON(ctx, http.MethodGet, "/tasks?status=input_required&context_id="+t.ContextID, nil, &l)
	for _, x := range l.Tasks {
		if x.TaskID == t.TaskID {
			return x.Approvals, err
		}
	}
	return nil, err
}

// waitSettled polls until a task has ended or waits for input.
func (c *client) waitSettled(ctx context.Context, agent, id string) (task, error) {
	for {
		t, err := c.getTask(ctx, agent, id)
		if err != nil || t.isTerminal() || t.Status.State == "input_required" {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, fmt.Errorf("task %s is still %s: %w", id, t.Status.State, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// event is one server-sent event: a fact of the log if it has an id, else streamed text.
type event struct {
	id   int64
	data string
	task
}

// errStreamCut means that a stream ended before its task.
var errStreamCut = errors.New("the stream broke off")

// streamEvents opens a stream and calls f for each event until f returns true or the task is settled.
func (c *client) streamEvents(ctx context.Context, path string, body any, f func(event) bool, header ...string) error {
	resp, err := c.openRequest(ctx, http.MethodPost, path, body, header...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(resp.Body)
		if err == nil {
			err = response{resp.StatusCode, resp.Header, raw}.decodeInto(nil)
		}
		if err == nil {
			err = fmt.Errorf("no stream: %s", raw)
		}
		return err
	}
	for ev, err := range readEvents(resp.Body) {
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errStreamCut, err)
		case strings.Contains(ev.data, `"error"`) && ev.TaskID == "":
			return &responseError{status: resp.StatusCode, body: ev.data}
		case !f(ev):
			return nil
		case ev.isTerminal():
			return nil
		}
	}
	return errStreamCut
}

// readEvents reads server-sent events and skips comments.
func readEvents(r io.Reader) func(yield func(event, error) bool) {
	return func(yield func(event, error) bool) {
		lines := bufio.NewReaderSize(r, 64<<10)
		var ev event
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(event{}, err)
				}
				return
			}
			field, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ": ")
			switch {
			case field == "id":
				ev.id, _ = strconv.ParseInt(value, 10, 64)
			case field == "data":
				ev.data = value
				_ = json.Unmarshal([]byte(value), &ev.task)
			case field == "" && value == "" && ev.data != "":
				if !yield(ev, nil) {
					return
				}
				ev = event{}
			}
		}
	}
}

// readLog returns the events on the log of an ended task that clients may see, from the first on.
func (c *client) readLog(ctx context.Context, agent, id string) (log []event, err error) {
	params := map[string]any{"id": id, "after": 0}
	err = c.streamEvents(ctx, message{agent: agent}.agentPath(), rpcCall("tasks/subscribe", params), func(ev event) bool {
		if ev.id > 0 { // streamed text is not on the log
			log = append(log, ev)
		}
		return true
	})
	return log, err
}

// decideCall approves or rejects a tool call of a task.
func (c *client) decideCall(ctx context.Context, outcome, id, call string) error {
	return c.requestJSON(ctx, http.MethodPost, "/tasks/"+id+"/"+outcome, map[string]any{"call_id": call}, nil)
}

// cancelTask cancels a task.
func (c *client) cancelTask(ctx context.Context, agent, id string) error {
	return c.requestJSON(ctx, http.MethodPost, message{agent: agent}.agentPath(), rpcCall("tasks/cancel", map[string]any{"id": id}), nil)
}
