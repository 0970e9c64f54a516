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
	stopped  = "stop"           // it is whole, or asks something back
	filtered = "content_filter" // the agent or one of its guardrails refuses
)

// teller tells of one task.
type teller struct {
	surface.Teller
	r     *http.Request
	task  agentsvc.Task
	usage bool // is told on streams
	begun bool
	ended bool               // the answer came to its end
	last  agentsvc.MessageID // whose text was told last, "" = none was
}

// whole returns the answer of a task, with its status.
func (t *teller) whole(task agentsvc.Task) (status int, body any) {
	t.ended = true
	if err := unanswered(task); err != nil {
		return err.status, err.body(surface.RequestID(t.r))
	}
	var texts []string
	for _, m := range task.History {
		if text := textOf(m); m.Role == agentsvc.RoleAgent && text != "" {
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, "\n\n")
	c := choice{Message: &said{Role: "assistant", Content: text}, Finish: finish(task.Status.State)}
	answer := t.envelope("chat.completion", c)
	answer.Usage = usageOf(task.Status.Message)
	return http.StatusOK, answer
}

// event returns the chunks that tell of ev, nil where there are none.
func (t *teller) event(ev agentsvc.Event) any {
	st := ev.Status
	if st == nil {
		m, ok := t.Message(ev)
		if text := t.follows(m); ok && text != "" {
			return t.chunk(delta{Content: &text}, nil)
		}
		return nil
	}
	var out surface.Several
	if empty := ""; !t.begun {
		t.begun = true
		out = append(out, t.chunk(delta{Role: "assistant", Content: &empty}, nil))
	}
	if t.ended = st.State.Terminal() || st.State.Interrupted(); !t.ended {
		return out
	}
	if err := unanswered(agentsvc.Task{ID: t.task.ID, Status: *st}); err != nil {
		return append(out, err.body(surface.RequestID(t.r)))
	}
	if st.Message != nil {
		if text := t.follows(t.Rest(*st.Message)); text != "" {
			out = append(out, t.chunk(delta{Content: &text}, nil))
		}
	}
	out = append(out, t.chunk(delta{}, finish(st.State)))
	if t.usage {
		last := t.envelope("chat.completion.chunk")
		last.Choices, last.Usage = []choice{}, usageOf(st.Message)
		out = append(out, last)
	}
	return out
}

// follows returns the text of m as it follows on what was told.
func (t *teller) follows(m agentsvc.Message) string {
	text := textOf(m)
	if text == "" {
		return ""
	}
	if t.last != "" && t.last != m.ID {
		text = "\n\n" + text
	}
	t.last = m.ID
	return text
}

func (t *teller) chunk(d delta, finish *string) completion {
	c := t.envelope("chat.completion.chunk", choice{Delta: &d, Finish: finish})
	if t.usage {
		c.Usage = json.RawMessage("null")
	}
	return c
}

// envelope returns what stands around every answer. Its id is the task's.
func (t *teller) envelope(object string, choices ...choice) completion {
	return completion{ID: string(t.task.ID), Object: object, Created: t.task.Created.Unix(), Model: t.task.Agent, Choices: choices}
}

// broken tells of an error in the middle of a stream.
func (t *teller) broken(err error) any {
	_, body := fault(surface.FaultOf(surface.RequestID(t.r), err))
	return body
}

func finish(s agentsvc.State) *string {
	why := stopped
	if s == agentsvc.Rejected {
		why = filtered
	}
	return &why
}

// textOf returns what m says: its texts, or where it has none its data as JSON. Data beside a text tells machines more, such as which
// tool waits for an approval.
func textOf(m agentsvc.Message) string {
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

// usageOf returns the tokens that the last message of a turn tells of.
func usageOf(m *agentsvc.Message) usage {
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
