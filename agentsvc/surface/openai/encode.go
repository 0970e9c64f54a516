package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// Why an answer ends.
const (
	finishStop          = "stop"           // it is whole, or asks something back
	finishContentFilter = "content_filter" // the agent or one of its guardrails refuses
)

// eventEncoder tells of one task.
type eventEncoder struct {
	surface.DeltaTracker
	r            *http.Request
	task         agentsvc.Task
	includeUsage bool // is told on streams
	started      bool
	ended        bool               // the answer came to its end
	lastMessage  agentsvc.MessageID // whose text was told last, "" = none was
}

// encodeCompletion returns the answer of a task, with its status.
func (t *eventEncoder) encodeCompletion(task agentsvc.Task) (status int, body any) {
	t.ended = true
	if err := newTaskFailure(task); err != nil {
		return err.status, err.toErrorBody(surface.RequestID(t.r))
	}
	var texts []string
	for _, m := range task.History {
		if text := messageText(m); m.Role == agentsvc.RoleAgent && text != "" {
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, "\n\n")
	c := choice{Message: &assistantMessage{Role: "assistant", Content: text}, Finish: finishReason(task.Status.State)}
	answer := t.newCompletion("chat.completion", c)
	answer.Usage = newUsage(task.Status.Message)
	return http.StatusOK, answer
}

// encodeEvent returns the chunks that tell of ev, nil where there are none.
func (t *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	st := ev.Status
	if st == nil {
		m, ok := t.NextMessage(ev)
		if text := t.continueText(m); ok && text != "" {
			return t.newChunk(delta{Content: &text}, nil)
		}
		return nil
	}
	var out surface.Bodies
	if empty := ""; !t.started {
		t.started = true
		out = append(out, t.newChunk(delta{Role: "assistant", Content: &empty}, nil))
	}
	if t.ended = st.State.IsTerminal() || st.State.IsInterrupted(); !t.ended {
		return out
	}
	if err := newTaskFailure(agentsvc.Task{ID: t.task.ID, Status: *st}); err != nil {
		return append(out, err.toErrorBody(surface.RequestID(t.r)))
	}
	if st.Message != nil {
		if text := t.continueText(t.TrimSent(*st.Message)); text != "" {
			out = append(out, t.newChunk(delta{Content: &text}, nil))
		}
	}
	out = append(out, t.newChunk(delta{}, finishReason(st.State)))
	if t.includeUsage {
		last := t.newCompletion("chat.completion.chunk")
		last.Choices, last.Usage = []choice{}, newUsage(st.Message)
		out = append(out, last)
	}
	return out
}

// continueText returns the text of m as it follows on what was told.
func (t *eventEncoder) continueText(m agentsvc.Message) string {
	text := messageText(m)
	if text == "" {
		return ""
	}
	if t.lastMessage != "" && t.lastMessage != m.ID {
		text = "\n\n" + text
	}
	t.lastMessage = m.ID
	return text
}

func (t *eventEncoder) newChunk(d delta, finish *string) completion {
	c := t.newCompletion("chat.completion.chunk", choice{Delta: &d, Finish: finish})
	if t.includeUsage {
		c.Usage = json.RawMessage("null")
	}
	return c
}

// newCompletion returns what stands around every answer. Its id is the task's.
func (t *eventEncoder) newCompletion(object string, choices ...choice) completion {
	return completion{ID: string(t.task.ID), Object: object, Created: t.task.Created.Unix(), Model: t.task.Agent, Choices: choices}
}

// encodeStreamError tells of an error in the middle of a stream.
func (t *eventEncoder) encodeStreamError(err error) any {
	_, body := encodeError(surface.NewFault(surface.RequestID(t.r), err))
	return body
}

func finishReason(s agentsvc.State) *string {
	reason := finishStop
	if s == agentsvc.Rejected {
		reason = finishContentFilter
	}
	return &reason
}

// messageText returns what m says: its texts, or where it has none its data as JSON. Data beside a text tells machines more, such as which
// tool waits for an approval.
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

// newUsage returns the tokens that the last message of a turn tells of.
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
