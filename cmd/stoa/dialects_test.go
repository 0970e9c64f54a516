package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dialectClient is a client of one protocol. Each function returns the response as JSON; a nil function is an
// operation that the protocol does not have.
type dialectClient struct {
	name   string
	send   func(text, task string) string           // creates a task, or answers one that waits
	decide func(task, call, decision string) string // about a tool call
	get    func(task string) string
	list   func() string
	cancel func(task string) string
}

// messageStyle is the names of a message's members in one protocol.
type messageStyle struct {
	id, role, parts, task string
	wrapped               bool   // data is in an object of its own
	kind                  string // the member of parts with their type, "" = there is none
}

var (
	snakeStyle      = messageStyle{"message_id", "user", "parts", "task_id", false, "type"}
	camelStyle      = messageStyle{"messageId", "user", "parts", "taskId", false, ""}
	a2a10Style      = messageStyle{"messageId", "ROLE_USER", "parts", "taskId", false, ""}
	a2a03Style      = messageStyle{"messageId", "user", "parts", "taskId", false, "kind"}
	a2a03RESTStyle  = messageStyle{"messageId", "ROLE_USER", "content", "taskId", true, ""} // version 0.3 over REST
	a2a03ProtoStyle = messageStyle{"messageId", "ROLE_USER", "parts", "taskId", true, ""}   // and over gRPC
)

// newDialectClients returns a client with a token for every protocol.
func (ts *testServer) newDialectClients(t *testing.T, token string) []dialectClient {
	t.Helper()
	conn := ts.dialGRPC(t)
	n := 0
	http := func(method, path string, body any) string {
		status, answer := ts.doRequest(t, method, path, token, body)
		if status != 200 || strings.Contains(strings.ReplaceAll(answer, `"error":null`, ""), `"error"`) {
			t.Fatalf("%s %s: %d %s", method, path, status, answer)
		}
		return answer
	}
	over := func(method, message string) string {
		answer, err := callGRPC(t, conn, token, method, message, "assistant")
		if err != nil {
			t.Fatalf("%s %s: %v", method, message, err)
		}
		return answer
	}
	// message returns a message in a style; wrapped data has the form of Protocol Buffers of version 0.3.
	message := func(part map[string]any, task string, as messageStyle) map[string]any {
		n++
		if data, ok := part["data"]; ok && as.wrapped {
			part = map[string]any{"data": map[string]any{"data": data}}
		}
		for kind := range part {
			if as.kind != "" {
				part[as.kind] = kind
			}
			break
		}
		m := map[string]any{as.id: fmt.Sprint("m-", n), "role": as.role, as.parts: []any{part}}
		if task != "" {
			m[as.task] = task
		}
		return m
	}
	text := func(s string) map[string]any { return map[string]any{"text": s} }
	newDecision := func(call, decision string) map[string]any {
		return map[string]any{"data": map[string]any{"type": "tool_approval", "call_id": call, "decision": decision}}
	}
	waiting := map[string]any{"blocking": true}
	// withMessages completes a client with the operations that send a message with one part.
	withMessages := func(d dialectClient, send func(part map[string]any, task string) string) dialectClient {
		d.send = func(s, task string) string { return send(text(s), task) }
		d.decide = func(task, call, decision string) string { return send(newDecision(call, decision), task) }
		return d
	}
	newRPCClient := func(name, path string, as messageStyle, send, get, list, cancel string) dialectClient {
		request := func(method string, params any) string { return http("POST", path, newRPCCall(method, params)) }
		return withMessages(dialectClient{
			name:   name,
			get:    func(id string) string { return request(get, map[string]any{"id": id}) },
			list:   func() string { return request(list, map[string]any{}) },
			cancel: func(id string) string { return request(cancel, map[string]any{"id": id}) },
		}, func(part map[string]any, task string) string {
			return request(send, map[string]any{"message": message(part, task, as)})
		})
	}
	newRESTClient := func(name, base, query string, as messageStyle) dialectClient {
		return withMessages(dialectClient{
			name:   name,
			get:    func(id string) string { return http("GET", base+"/tasks/"+id+query, nil) },
			list:   func() string { return http("GET", base+"/tasks", nil) },
			cancel: func(id string) string { return http("POST", base+"/tasks/"+id+":cancel", map[string]any{}) },
		}, func(part map[string]any, task string) string {
			return http("POST", base+"/message:send", map[string]any{"message": message(part, task, as), "configuration": waiting})
		})
	}
	asJSON := func(v any) string { raw, _ := json.Marshal(v); return string(raw) }
	return []dialectClient{
		newRPCClient("extension", "/agents/assistant", snakeStyle, "message/send", "tasks/get", "tasks/list", "tasks/cancel"),
		newRESTClient("versioned", "/v1/agents/assistant", "?include_artifacts=true&history_length=100", camelStyle),
		newRPCClient("A2A 1.0, JSON-RPC", "/a2a/assistant", a2a10Style, "SendMessage", "GetTask", "ListTasks", "CancelTask"),
		newRESTClient("A2A 1.0, REST", "/a2a/assistant", "", a2a10Style),
		newRPCClient("A2A 0.3, JSON-RPC", "/a2a/assistant", a2a03Style, "message/send", "tasks/get", "tasks/list", "tasks/cancel"),
		newRESTClient("A2A 0.3, REST", "/a2a/assistant/v0.3/v1", "", a2a03RESTStyle),
		newRPCClient("root", "/?agent=assistant", a2a10Style, "SendMessage", "GetTask", "ListTasks", "CancelTask"),
		withMessages(dialectClient{
			name:   "A2A 1.0, gRPC",
			get:    func(id string) string { return over(service10+"GetTask", asJSON(map[string]any{"id": id})) },
			list:   func() string { return over(service10+"ListTasks", `{}`) },
			cancel: func(id string) string { return over(service10+"CancelTask", asJSON(map[string]any{"id": id})) },
		}, func(part map[string]any, task string) string {
			return over(service10+"SendMessage", asJSON(map[string]any{"message": message(part, task, a2a10Style)}))
		}),
		withMessages(dialectClient{
			name: "A2A 0.3, gRPC",
			get: func(id string) string {
				return over(service03+"GetTask", asJSON(map[string]any{"name": "tasks/" + id}))
			},
			list: func() string { return over(service03+"ListTasks", `{}`) },
			cancel: func(id string) string {
				return over(service03+"CancelTask", asJSON(map[string]any{"name": "tasks/" + id}))
			},
		}, func(part map[string]any, task string) string {
			return over(service03+"SendMessage", asJSON(map[string]any{"request": message(part, task, a2a03ProtoStyle), "configuration": waiting}))
		}),
		{name: "OpenAI", send: func(s, task string) string {
			if task != "" {
				return ""
			}
			return http("POST", "/openai/v1/chat/completions", map[string]any{"model": "assistant", "messages": []any{map[string]any{"role": "user", "content": s}}})
		}},
		{name: "OpenAI responses", send: func(s, task string) string {
			body := map[string]any{"model": "assistant", "input": s}
			if task != "" {
				body["previous_response_id"] = "resp_" + task + "_1"
			}
			return http("POST", "/openai/v1/responses", body)
		}},
		{name: "MCP", send: func(s, task string) string {
			arguments := map[string]any{"message": s}
			if task != "" {
				arguments["task_id"] = task
			}
			return http("POST", "/mcp/assistant", newRPCCall("tools/call", map[string]any{"name": "assistant", "arguments": arguments}))
		}},
	}
}

// taskFacts is what a protocol shows of a task, in protocol-independent form.
type taskFacts struct {
	ID, Context, State string
	Answer             string // of the agent
	History, Artifacts []string
}

// findMember returns the first member of an object that has one of the names.
func findMember(object any, names ...string) any {
	m, _ := object.(map[string]any)
	for _, name := range names {
		if v, ok := m[name]; ok {
			return v
		}
	}
	return nil
}

// findTask returns the task in a response.
func findTask(v any) any {
	for _, at := range []string{"result", "task", "structuredContent"} {
		if inner := findMember(v, at); inner != nil {
			return findTask(inner)
		}
	}
	return v
}

func messageText(message any) (s string) {
	parts, _ := findMember(message, "parts", "content").([]any)
	for _, p := range parts {
		if text, ok := findMember(p, "text").(string); ok {
			s += text
		}
		if data := findMember(p, "data"); data != nil {
			s += "(data)"
		}
		if file := findMember(p, "file", "raw", "url"); file != nil {
			s += "(file)"
		}
	}
	return s
}

func parseFacts(t *testing.T, answer string) (got taskFacts) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return readTaskFacts(findTask(v))
}

func readTaskFacts(task any) (got taskFacts) {
	text := func(names ...string) string { s, _ := findMember(task, names...).(string); return s }
	got = taskFacts{ID: text("id", "task_id", "taskId"), Context: text("contextId", "context_id"), State: text("state"), Answer: text("text")}
	if response, ok := strings.CutPrefix(got.ID, "resp_"); ok {
		got.ID, _, _ = strings.Cut(response, "_")
	}
	if status := findMember(task, "status"); status != nil {
		got.State, _ = findMember(status, "state").(string)
		got.Answer = messageText(findMember(status, "message", "update"))
	}
	got.State = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(got.State, "TASK_STATE_")), "-", "_")
	got.State = strings.ReplaceAll(got.State, "canceled", "cancelled")
	history, _ := findMember(task, "history").([]any)
	for _, m := range history {
		role, _ := findMember(m, "role").(string)
		got.History = append(got.History, strings.ToLower(strings.TrimPrefix(role, "ROLE_"))+": "+messageText(m))
	}
	artifacts, _ := findMember(task, "artifacts").([]any)
	for _, a := range artifacts {
		name, _ := findMember(a, "name").(string)
		got.Artifacts = append(got.Artifacts, name+": "+messageText(a))
	}
	return got
}

// TestDialects runs the same sequence of operations in every protocol and reads each task in all others: they must
// show the same facts.
func TestDialects(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createApp(t, "acme", `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^sum$"}
        then: [{call: {tool: adder, arguments: {expression: "1 + 1"}}}]
      - when: {tool_result: adder}
        then: [{say: "It is {{result}}."}]
      - when: {text: "^file$"}
        then: [{artifact: {name: out.txt, media_type: text/plain, text: "hello"}}, {say: "Here it is."}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - then: [{say: "You said: {{text}}"}]
tools:
  adder: {type: function, handler: calculator, require_approval: true, approval_prompt: "May I?"}
agents:
  assistant: {llm: demo, tools: [adder], input_modes: ["text/plain", "application/json"]}
`)
		all := h.newDialectClients(t, h.createToken(t, "acme", "ana", map[string]any{"roles": []string{"operator"}}))
		readers := slices.DeleteFunc(slices.Clone(all), func(d dialectClient) bool { return d.get == nil })
		// same checks that every protocol shows the same facts of a task.
		same := func(id, state, answer string) {
			t.Helper()
			first := parseFacts(t, readers[0].get(id))
			if first.ID != id || first.State != state || first.Answer != answer {
				t.Errorf("%s: %+v, want %s: %s", readers[0].name, first, state, answer)
			}
			for _, d := range readers[1:] {
				if diff := cmp.Diff(first, parseFacts(t, d.get(id))); diff != "" {
					t.Errorf("%s differs from %s:\n%s", d.name, readers[0].name, diff)
				}
			}
		}
		var ids []string
		for i, d := range all {
			next := readers[(i+1)%len(readers)]
			begin := func(text string) string {
				answer := d.send(text, "")
				id := parseFacts(t, answer).ID
				if id == "" {
					t.Fatalf("%s: %q is answered without a task: %s", d.name, text, answer)
				}
				ids = append(ids, id)
				return id
			}
			same(begin("hello"), "completed", "You said: hello")
			same(begin("file"), "completed", "Here it is.")
			asked := begin("ask")
			same(asked, "input_required", "Which city?")
			next.send("Rome", asked)
			same(asked, "completed", "You said: Rome")
			given := begin("ask")
			next.cancel(given)
			same(given, "cancelled", "")
			sum := begin("sum")
			var pending struct {
				Tasks []struct {
					Approvals []struct {
						CallID string `json:"call_id"`
					}
				}
			}
			_, body := h.doRequest(t, http.MethodGet, "/tasks?status=input_required", h.createToken(t, "acme", "ana", nil), nil)
			if err := json.Unmarshal([]byte(body), &pending); err != nil || len(pending.Tasks) != 1 || len(pending.Tasks[0].Approvals) != 1 {
				t.Fatalf("%s: %s (%v)", d.name, body, err)
			}
			next.decide(sum, pending.Tasks[0].Approvals[0].CallID, "approve")
			same(sum, "completed", "It is 2.")
		}
		// Data that is not an object.
		list := map[string]any{"messageId": "list", "role": "ROLE_USER", "parts": []any{map[string]any{"data": []int{1, 2}}}}
		_, body := h.doRequest(t, http.MethodPost, "/a2a/assistant", h.createToken(t, "acme", "ana", nil), newRPCCall("SendMessage", map[string]any{"message": list}))
		sent := parseFacts(t, body).ID
		ids = append(ids, sent)
		same(sent, "completed", "You said: ")
		for _, d := range readers {
			var v any
			if err := json.Unmarshal([]byte(d.list()), &v); err != nil {
				t.Fatal(err)
			}
			listed, _ := findMember(findTask(v), "tasks").([]any)
			var got []string
			for _, task := range listed {
				got = append(got, readTaskFacts(task).ID)
			}
			want := slices.Clone(ids[max(0, len(ids)-len(got)):])
			slices.Reverse(want)
			if diff := cmp.Diff(want, got); diff != "" || len(got) < 20 {
				t.Errorf("%s lists %d tasks:\n%s", d.name, len(got), diff)
			}
		}
	})
}
