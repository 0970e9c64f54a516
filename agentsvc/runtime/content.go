package runtime

import (
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Requests and responses of models as span attributes, in the JSON form of the OpenTelemetry GenAI semantic
// conventions. Only the operator's own app has them, and only if the operator has enabled them: they contain prompts.

// spanMessage is a message in gen_ai.input.messages or gen_ai.output.messages.
type spanMessage struct {
	Role   string     `json:"role"`
	Parts  []spanPart `json:"parts"`
	Finish string     `json:"finish_reason,omitempty"`
}

// spanPart is a part of a message. Type is text, tool_call or tool_call_response; each uses some of the fields.
type spanPart struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// requestAttributes returns the attributes for the content of a request: the system prompt, the texts, tool calls and
// tool results. Files and data parts are left out.
func requestAttributes(req llm.Request) []attribute.KeyValue {
	var all []spanMessage
	for _, e := range req.Conversation {
		switch {
		case e.Message != nil:
			m := spanMessage{Role: "user"}
			if e.Message.Role == agentsvc.RoleAgent {
				m.Role = "assistant"
			}
			for _, p := range e.Message.Parts {
				if p.Text != "" {
					m.Parts = append(m.Parts, spanPart{Type: "text", Content: p.Text})
				}
			}
			for _, c := range e.Message.ToolCalls {
				m.Parts = append(m.Parts, toolCallPart(c))
			}
			all = append(all, m)
		case e.Result != nil:
			all = append(all, spanMessage{Role: "tool", Parts: []spanPart{{Type: "tool_call_response", ID: string(e.Result.Call), Response: e.Result.Text}}})
		}
	}
	return []attribute.KeyValue{
		jsonAttribute(semconv.GenAISystemInstructionsKey, []spanPart{{Type: "text", Content: req.SystemText()}}), jsonAttribute(semconv.GenAIInputMessagesKey, all),
	}
}

func toolCallPart(c agentsvc.ToolCall) spanPart {
	return spanPart{Type: "tool_call", ID: string(c.ID), Name: c.Name, Arguments: c.Arguments}
}

// responseContent collects the content of a response. A nil responseContent collects nothing.
type responseContent struct {
	text  strings.Builder
	calls []spanPart
}

func (r *responseContent) addChunk(c llm.Chunk) {
	if r == nil {
		return
	}
	r.text.WriteString(c.Text)
	if c.ToolCall != nil {
		r.calls = append(r.calls, toolCallPart(*c.ToolCall))
	}
}

// spanAttributes returns the attributes for the content of a response.
func (r *responseContent) spanAttributes(stop llm.StopReason) []attribute.KeyValue {
	if r == nil {
		return nil
	}
	parts := append([]spanPart{{Type: "text", Content: r.text.String()}}, r.calls...)
	return []attribute.KeyValue{jsonAttribute(semconv.GenAIOutputMessagesKey, []spanMessage{{Role: "assistant", Parts: parts, Finish: string(stop)}})}
}

func jsonAttribute(key attribute.Key, v any) attribute.KeyValue {
	text, err := json.Marshal(v)
	if err != nil {
		// A model may return arguments that are not JSON. The attribute is then empty.
		text = nil
	}
	return key.String(string(text))
}
