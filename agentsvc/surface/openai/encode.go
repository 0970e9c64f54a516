package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/stream"
)

// Values of finish_reason.
const (
	finishStop          = "stop"           // the answer is complete, or the agent asks for input
	finishContentFilter = "content_filter" // the agent or a guardrail refused
	finishToolCalls     = "tool_calls"     // tool calls of the agent wait for decisions, see approval.go
)

// eventEncoder encodes the answer of one task. It belongs to the goroutine of its request.
type eventEncoder struct {
	stream.DeltaTracker
	r *http.Request
	// task is the snapshot at the start of the subscription; only ID, agent and creation time are used.
	task         agentsvc.Task
	includeUsage bool               // stream_options.include_usage: a last chunk has the tokens
	started      bool               // the first chunk with the role was sent
	ended        bool               // the answer is complete; handleChat does not cancel the task then
	lastMessage  agentsvc.MessageID // the message whose text was sent last, "" = none
}

// encodeCompletion returns the HTTP status and body for a finished task. The texts of all agent messages are
// paragraphs of one answer. A task that waits for input is an answer, too: its question.
func (e *eventEncoder) encodeCompletion(task agentsvc.Task) (status int, body any) {
	e.ended = true
	if err := newTaskFailure(task); err != nil {
		return err.status, err.toErrorBody(surface.RequestID(e.r))
	}
	var texts []string
	// The history of this turn only: prior messages of the client are not part of it.
	for _, m := range task.History {
		if text := messageText(m); m.Role == agentsvc.RoleAgent && text != "" {
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, "\n\n")
	c := choice{Message: &assistantMessage{Role: "assistant", Content: text, ToolCalls: newToolCalls(task.ID, task.Status), Metadata: newCitations(task.Status.Message)}, Finish: finishReason(task.Status)}
	answer := e.newCompletion("chat.completion", c)
	answer.Usage = newUsage(task.Status.Message)
	return http.StatusOK, answer
}

// encodeEvent returns the chunks for ev, or nil if there are none. The first status opens the answer with the role.
// The status that ends the turn adds the text that deltas have not sent, the finish reason and, if asked for, the
// usage; or an error, if the task has failed.
func (e *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	st := ev.Status
	if st == nil {
		m, ok := e.NextMessage(ev)
		if text := e.continueText(m); ok && text != "" {
			return e.newChunk(delta{Content: &text}, nil)
		}
		return nil
	}
	var out stream.Bodies
	// The first chunk carries the role and an empty text, as OpenAI's own streams do.
	if empty := ""; !e.started {
		e.started = true
		out = append(out, e.newChunk(delta{Role: "assistant", Content: &empty}, nil))
	}
	if e.ended = st.State.IsTerminal() || st.State.IsInterrupted(); !e.ended {
		return out
	}
	if err := newTaskFailure(agentsvc.Task{ID: e.task.ID, Status: *st}); err != nil {
		return append(out, err.toErrorBody(surface.RequestID(e.r)))
	}
	if st.Message != nil {
		if text := e.continueText(e.TrimSent(*st.Message)); text != "" {
			out = append(out, e.newChunk(delta{Content: &text}, nil))
		}
	}
	if calls := newToolCalls(e.task.ID, *st); calls != nil {
		for i := range calls {
			calls[i].Index = &i
		}
		out = append(out, e.newChunk(delta{ToolCalls: calls}, nil))
	}
	out = append(out, e.newChunk(delta{Metadata: newCitations(st.Message)}, finishReason(*st)))
	if e.includeUsage {
		// The chunk with the usage has no choices (stream_options.include_usage).
		last := e.newCompletion("chat.completion.chunk")
		last.Choices, last.Usage = []choice{}, newUsage(st.Message)
		out = append(out, last)
	}
	return out
}

// continueText returns the text of m as a continuation of what was sent: a new message starts a new paragraph, as
// in encodeCompletion.
func (e *eventEncoder) continueText(m agentsvc.Message) string {
	text := messageText(m)
	if text == "" {
		return ""
	}
	if e.lastMessage != "" && e.lastMessage != m.ID {
		text = "\n\n" + text
	}
	e.lastMessage = m.ID
	return text
}

// newChunk returns a chunk. With include_usage every chunk has the member usage, null except in the last one
// (OpenAI's API reference, stream_options).
func (e *eventEncoder) newChunk(d delta, finish *string) completion {
	c := e.newCompletion("chat.completion.chunk", choice{Delta: &d, Finish: finish})
	if e.includeUsage {
		c.Usage = json.RawMessage("null")
	}
	return c
}

// newCompletion returns a completion or chunk around choices. Its ID is the task's.
func (e *eventEncoder) newCompletion(object string, choices ...choice) completion {
	return completion{ID: string(e.task.ID), Object: object, Created: e.task.Created.Unix(), Model: e.task.Agent, Choices: choices}
}

// encodeStreamError returns the body of an error in the middle of a stream.
func (e *eventEncoder) encodeStreamError(err error) any {
	_, body := encodeError(apierror.NewFault(surface.RequestID(e.r), err))
	return body
}

// finishReason returns why an answer ends with a status.
func finishReason(st agentsvc.Status) *string {
	reason := finishStop
	switch {
	case st.State == agentsvc.Rejected:
		reason = finishContentFilter
	case len(openApprovals(st)) > 0:
		reason = finishToolCalls
	}
	return &reason
}

// newToolCalls returns the calls of approvalFunction with which the status of a task ends an answer, nil if it waits for
// no decision.
func newToolCalls(id agentsvc.TaskID, st agentsvc.Status) (calls []toolCall) {
	for _, a := range openApprovals(st) {
		calls = append(calls, toolCall{ID: newApprovalID(id, a.Call.ID), Type: "function", Function: functionCall{approvalFunction, describeRequest(id, a)}})
	}
	return calls
}

// messageText returns the texts of m or, if it has none, its data as JSON. Data of a message that has text is left
// out: it is meant for programs, such as which tool waits for an approval.
func messageText(m agentsvc.Message) string {
	if text := m.Text(); text != "" {
		return text
	}
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Data != nil {
			raw, _ := json.Marshal(p.Data.Value)
			b.Write(raw)
		}
	}
	return b.String()
}

// newCitations returns the citations of a turn's last message, nil if it has none.
func newCitations(m *agentsvc.Message) *citations {
	if m == nil || m.Metadata[agentsvc.CitationsKey] == nil {
		return nil
	}
	return &citations{m.Metadata[agentsvc.CitationsKey]}
}

// newUsage returns the token counts of the turn, which the runner stores in the metadata of the last message. They
// are float64 because metadata is decoded JSON.
func newUsage(m *agentsvc.Message) usage {
	var u usage
	if m == nil {
		return u
	}
	tokens, _ := m.Metadata["tokens_used"].(map[string]any)
	of := func(name string) int64 {
		n, _ := tokens[name].(float64)
		return int64(n)
	}
	u.Prompt, u.Completion, u.Total = of("input"), of("output"), of("total")
	u.PromptDetails.Cached, u.Details.Reasoning = of("cache_read"), of("reasoning")
	return u
}
