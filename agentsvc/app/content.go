package app

import (
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// What models are asked and answer, in the form that the GenAI conventions give it in spans. Only the operator's own app
// has it there, and only if the operator wants it.

// spoken is one message.
type spoken struct {
	Role   string       `json:"role"`
	Parts  []spokenPart `json:"parts"`
	Finish string       `json:"finish_reason,omitempty"`
}

type spokenPart struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// asked is what a span says of a request's content.
func asked(req llm.Request) []attribute.KeyValue {
	var all []spoken
	for _, e := range req.Conversation {
		switch {
		case e.Message != nil:
			m := spoken{Role: "user"}
			if e.Message.Role == agentsvc.RoleAgent {
				m.Role = "assistant"
			}
			for _, p := range e.Message.Parts {
				if p.Text != "" {
					m.Parts = append(m.Parts, spokenPart{Type: "text", Content: p.Text})
				}
			}
			for _, c := range e.Message.ToolCalls {
				m.Parts = append(m.Parts, called(c))
			}
			all = append(all, m)
		case e.Result != nil:
			all = append(all, spoken{Role: "tool", Parts: []spokenPart{{Type: "tool_call_response", ID: string(e.Result.Call), Response: e.Result.Text}}})
		}
	}
	return []attribute.KeyValue{
		inJSON(semconv.GenAISystemInstructionsKey, []spokenPart{{Type: "text", Content: req.System}}), inJSON(semconv.GenAIInputMessagesKey, all),
	}
}

func called(c agentsvc.ToolCall) spokenPart {
	return spokenPart{Type: "tool_call", ID: string(c.ID), Name: c.Name, Arguments: c.Arguments}
}

// heard is what a model answers.
type heard struct {
	text  strings.Builder
	calls []spokenPart
}

func (h *heard) note(c llm.Chunk) {
	if h == nil {
		return
	}
	h.text.WriteString(c.Text)
	if c.ToolCall != nil {
		h.calls = append(h.calls, called(*c.ToolCall))
	}
}

// attributes is what a span says of an answer's content.
func (h *heard) attributes(stop llm.Stop) []attribute.KeyValue {
	if h == nil {
		return nil
	}
	parts := append([]spokenPart{{Type: "text", Content: h.text.String()}}, h.calls...)
	return []attribute.KeyValue{inJSON(semconv.GenAIOutputMessagesKey, []spoken{{Role: "assistant", Parts: parts, Finish: string(stop)}})}
}

func inJSON(key attribute.Key, v any) attribute.KeyValue {
	text, err := json.Marshal(v)
	if err != nil {
		text = nil // a model's own arguments that are no JSON
	}
	return key.String(string(text))
}
