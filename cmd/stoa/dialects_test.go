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

// tongue is a dialect as a client speaks it: each function returns the answer as JSON. Nil ones are what it has no words for.
type tongue struct {
	name   string
	say    func(text, task string) string           // to a new task, or on one that waits
	decide func(task, call, decision string) string // about a tool call
	get    func(task string) string
	list   func() string
	cancel func(task string) string
}

// style is what a dialect calls the members of a message.
type style struct {
	id, role, parts, task string
	wrapped               bool // data
	typed                 bool // parts say what they are
}

var (
	snake   = style{"message_id", "user", "parts", "task_id", false, true}
	camel   = style{"messageId", "user", "parts", "taskId", false, false}
	newer   = style{"messageId", "ROLE_USER", "parts", "taskId", false, false}
	older   = style{"messageId", "ROLE_USER", "content", "taskId", true, false} // version 0.3 over REST
	proto03 = style{"messageId", "ROLE_USER", "parts", "taskId", true, false}   // and over gRPC
)

// tongues are all dialects, spoken with a token.
func (h *testHouse) tongues(t *testing.T, token string) []tongue {
	t.Helper()
	conn := h.dialGRPC(t)
	n := 0
	http := func(method, path string, body any) string {
		status, answer := h.ask(t, method, path, token, body)
		if status != 200 || strings.Contains(answer, `"error"`) {
			t.Fatalf("%s %s: %d %s", method, path, status, answer)
		}
		return answer
	}
	over := func(method, message string) string {
		answer, err := call(t, conn, token, method, message, "assistant")
		if err != nil {
			t.Fatalf("%s %s: %v", method, message, err)
		}
		return answer
	}
	// message is one of a style; data that is wrapped stands as Protocol Buffers of version 0.3 have it.
	message := func(part map[string]any, task string, as style) map[string]any {
		n++
		if data, ok := part["data"]; ok && as.wrapped {
			part = map[string]any{"data": map[string]any{"data": data}}
		}
		for kind := range part {
			if as.typed {
				part["type"] = kind
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
	ruling := func(call, decision string) map[string]any {
		return map[string]any{"data": map[string]any{"type": "tool_approval", "call_id": call, "decision": decision}}
	}
	waiting := map[string]any{"blocking": true}
	// spoken makes a dialect of what takes a message with one part.
	spoken := func(d tongue, send func(part map[string]any, task string) string) tongue {
		d.say = func(s, task string) string { return send(text(s), task) }
		d.decide = func(task, call, decision string) string { return send(ruling(call, decision), task) }
		return d
	}
	rpcTongue := func(name, path string, as style, send, get, list, cancel string) tongue {
		ask := func(method string, params any) string { return http("POST", path, rpc(method, params)) }
		return spoken(tongue{
			name:   name,
			get:    func(id string) string { return ask(get, map[string]any{"id": id}) },
			list:   func() string { return ask(list, map[string]any{}) },
			cancel: func(id string) string { return ask(cancel, map[string]any{"id": id}) },
		}, func(part map[string]any, task string) string {
			return ask(send, map[string]any{"message": message(part, task, as)})
		})
	}
	restTongue := func(name, base, query string, as style) tongue {
		return spoken(tongue{
			name:   name,
			get:    func(id string) string { return http("GET", base+"/tasks/"+id+query, nil) },
			list:   func() string { return http("GET", base+"/tasks", nil) },
			cancel: func(id string) string { return http("POST", base+"/tasks/"+id+":cancel", map[string]any{}) },
		}, func(part map[string]any, task string) string {
			return http("POST", base+"/message:send", map[string]any{"message": message(part, task, as), "configuration": waiting})
		})
	}
	asJSON := func(v any) string { raw, _ := json.Marshal(v); return string(raw) }
	return []tongue{
		rpcTongue("extension", "/agents/assistant", snake, "message/send", "tasks/get", "tasks/list", "tasks/cancel"),
		restTongue("versioned", "/v1/agents/assistant", "?include_artifacts=true&history_length=100", camel),
		rpcTongue("A2A 1.0, JSON-RPC", "/a2a/assistant", newer, "SendMessage", "GetTask", "ListTasks", "CancelTask"),
		restTongue("A2A 1.0, REST", "/a2a/assistant", "", newer),
		rpcTongue("A2A 0.3, JSON-RPC", "/a2a/assistant", camel, "message/send", "tasks/get", "tasks/list", "tasks/cancel"),
		restTongue("A2A 0.3, REST", "/a2a/assistant/v0.3/v1", "", older),
		rpcTongue("root", "/?agent=assistant", newer, "SendMessage", "GetTask", "ListTasks", "CancelTask"),
		spoken(tongue{
			name:   "A2A 1.0, gRPC",
			get:    func(id string) string { return over(service10+"GetTask", asJSON(map[string]any{"id": id})) },
			list:   func() string { return over(service10+"ListTasks", `{}`) },
			cancel: func(id string) string { return over(service10+"CancelTask", asJSON(map[string]any{"id": id})) },
		}, func(part map[string]any, task string) string {
			return over(service10+"SendMessage", asJSON(map[string]any{"message": message(part, task, newer)}))
		}),
		spoken(tongue{
			name: "A2A 0.3, gRPC",
			get: func(id string) string {
				return over(service03+"GetTask", asJSON(map[string]any{"name": "tasks/" + id}))
			},
			list: func() string { return over(service03+"ListTasks", `{}`) },
			cancel: func(id string) string {
				return over(service03+"CancelTask", asJSON(map[string]any{"name": "tasks/" + id}))
			},
		}, func(part map[string]any, task string) string {
			return over(service03+"SendMessage", asJSON(map[string]any{"request": message(part, task, proto03), "configuration": waiting}))
		}),
		{name: "OpenAI", say: func(s, task string) string {
			if task != "" {
				return ""
			}
			return http("POST", "/openai/v1/chat/completions", map[string]any{"model": "assistant", "messages": []any{map[string]any{"role": "user", "content": s}}})
		}},
		{name: "MCP", say: func(s, task string) string {
			arguments := map[string]any{"message": s}
			if task != "" {
				arguments["task_id"] = task
			}
			return http("POST", "/mcp/assistant", rpc("tools/call", map[string]any{"name": "assistant", "arguments": arguments}))
		}},
	}
}

// facts is what a dialect tells of a task, in words that belong to none.
type facts struct {
	ID, Context, State string
	Answer             string   // of the agent
	Said, Made         []string // the history, and the artifacts
}

// member returns the first member of an object that goes by one of the names.
func member(object any, names ...string) any {
	m, _ := object.(map[string]any)
	for _, name := range names {
		if v, ok := m[name]; ok {
			return v
		}
	}
	return nil
}

// taskIn finds the task in an answer.
func taskIn(v any) any {
	for _, at := range []string{"result", "task", "structuredContent"} {
		if inner := member(v, at); inner != nil {
			return taskIn(inner)
		}
	}
	return v
}

func textOf(message any) (s string) {
	parts, _ := member(message, "parts", "content").([]any)
	for _, p := range parts {
		if text, ok := member(p, "text").(string); ok {
			s += text
		}
		if data := member(p, "data"); data != nil {
			s += "(data)"
		}
		if file := member(p, "file", "raw", "url"); file != nil {
			s += "(file)"
		}
	}
	return s
}

func factsIn(t *testing.T, answer string) (got facts) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return factsOf(taskIn(v))
}

func factsOf(task any) (got facts) {
	text := func(names ...string) string { s, _ := member(task, names...).(string); return s }
	got = facts{ID: text("id", "task_id", "taskId"), Context: text("contextId", "context_id"), State: text("state"), Answer: text("text")}
	got.ID = strings.TrimPrefix(got.ID, "chatcmpl-")
	if status := member(task, "status"); status != nil {
		got.State, _ = member(status, "state").(string)
		got.Answer = textOf(member(status, "message", "update"))
	}
	got.State = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(got.State, "TASK_STATE_")), "-", "_")
	got.State = strings.ReplaceAll(got.State, "canceled", "cancelled")
	history, _ := member(task, "history").([]any)
	for _, m := range history {
		role, _ := member(m, "role").(string)
		got.Said = append(got.Said, strings.ToLower(strings.TrimPrefix(role, "ROLE_"))+": "+textOf(m))
	}
	artifacts, _ := member(task, "artifacts").([]any)
	for _, a := range artifacts {
		name, _ := member(a, "name").(string)
		got.Made = append(got.Made, name+": "+textOf(a))
	}
	return got
}

// TestDialects tells one story in every dialect, with the end of each chapter facts in another one: all of them read the same
// of every task.
func TestDialects(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *testHouse) {
		h.create(t, "acme", `
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
		all := h.tongues(t, h.token(t, "acme", "ana", map[string]any{"roles": []string{"operator"}}))
		readers := slices.DeleteFunc(slices.Clone(all), func(d tongue) bool { return d.get == nil })
		// same wants every dialect to tell the same of a task.
		same := func(id, state, answer string) {
			t.Helper()
			first := factsIn(t, readers[0].get(id))
			if first.ID != id || first.State != state || first.Answer != answer {
				t.Errorf("%s: %+v, want %s: %s", readers[0].name, first, state, answer)
			}
			for _, d := range readers[1:] {
				if diff := cmp.Diff(first, factsIn(t, d.get(id))); diff != "" {
					t.Errorf("%s tells otherwise than %s:\n%s", d.name, readers[0].name, diff)
				}
			}
		}
		var ids []string
		for i, d := range all {
			next := readers[(i+1)%len(readers)]
			begin := func(text string) string {
				answer := d.say(text, "")
				id := factsIn(t, answer).ID
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
			next.say("Rome", asked)
			same(asked, "completed", "You said: Rome")
			given := begin("ask")
			next.cancel(given)
			same(given, "cancelled", "")
			sum := begin("sum")
			var held struct {
				Tasks []struct {
					Approvals []struct {
						CallID string `json:"call_id"`
					}
				}
			}
			_, body := h.ask(t, http.MethodGet, "/tasks?status=input_required", h.token(t, "acme", "ana", nil), nil)
			if err := json.Unmarshal([]byte(body), &held); err != nil || len(held.Tasks) != 1 || len(held.Tasks[0].Approvals) != 1 {
				t.Fatalf("%s: %s (%v)", d.name, body, err)
			}
			next.decide(sum, held.Tasks[0].Approvals[0].CallID, "approve")
			same(sum, "completed", "It is 2.")
		}
		// Data that is no object.
		list := map[string]any{"messageId": "list", "role": "ROLE_USER", "parts": []any{map[string]any{"data": []int{1, 2}}}}
		_, body := h.ask(t, http.MethodPost, "/a2a/assistant", h.token(t, "acme", "ana", nil), rpc("SendMessage", map[string]any{"message": list}))
		sent := factsIn(t, body).ID
		ids = append(ids, sent)
		same(sent, "completed", "You said: ")
		for _, d := range readers {
			var v any
			if err := json.Unmarshal([]byte(d.list()), &v); err != nil {
				t.Fatal(err)
			}
			listed, _ := member(taskIn(v), "tasks").([]any)
			var got []string
			for _, task := range listed {
				got = append(got, factsOf(task).ID)
			}
			want := slices.Clone(ids[max(0, len(ids)-len(got)):])
			slices.Reverse(want)
			if diff := cmp.Diff(want, got); diff != "" || len(got) < 20 {
				t.Errorf("%s lists %d tasks:\n%s", d.name, len(got), diff)
			}
		}
	})
}
