package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"stoa/agentsvc/llm"
)

// ollama is Ollama's chat. Its server asks for no key: a request without one passes.
var ollama = dialect{
	key: func(r *http.Request) string {
		if r.Header.Get("Authorization") == "" {
			return Key
		}
		return bearer(r)
	},
	read: readOllama, play: playOllama,
	refuse: refuseJSON(func(_ int, message string) any { return object{"error": message} }),
}

type ollamaMessage struct {
	Role      string       `json:"role"`
	Content   string       `json:"content"`
	Thinking  string       `json:"thinking,omitempty"`
	Images    []string     `json:"images,omitempty"`
	ToolName  string       `json:"tool_name,omitempty"`
	ToolCalls []ollamaCall `json:"tool_calls,omitempty"`
}

type ollamaCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

func readOllama(_ *http.Request, body []byte) (asked, error) {
	var req struct {
		Model    string          `json:"model"`
		Stream   *bool           `json:"stream"`
		Messages []ollamaMessage `json:"messages"`
		Tools    []struct {
			Type     string `json:"type"`
			Function struct {
				Name       string `json:"name"`
				Parameters struct {
					Type       string         `json:"type"`
					Properties map[string]any `json:"properties"`
				} `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return asked{}, err
	}
	if req.Model == "" || len(req.Messages) == 0 || req.Stream != nil && !*req.Stream {
		return asked{}, errors.New("model and messages are required, and only streams are served")
	}
	for _, t := range req.Tools {
		if t.Type != "function" || t.Function.Name == "" || t.Function.Parameters.Type != "object" {
			return asked{}, errors.New("a tool is malformed")
		}
	}
	a := asked{model: req.Model, usage: true}
	called := map[string]bool{}
	for i, m := range req.Messages {
		a.text, a.tool = m.Content, ""
		var err error
		switch m.Role {
		case "system", "user":
			for _, image := range m.Images {
				if raw, bad := base64.StdEncoding.DecodeString(image); bad != nil || len(raw) == 0 {
					err = errors.New("malformed image")
				}
			}
		case "assistant":
			for _, c := range m.ToolCalls {
				called[c.Function.Name] = true
				if json.Unmarshal(c.Function.Arguments, &object{}) != nil {
					err = errors.New("arguments are no object")
				}
			}
		case "tool":
			if a.tool = m.ToolName; !called[a.tool] {
				err = errors.New("answers no tool call")
			}
		default:
			err = fmt.Errorf("unknown role %q", m.Role)
		}
		if err != nil {
			return asked{}, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	return a, nil
}

func playOllama(w http.ResponseWriter, r *http.Request, turn Turn, a asked) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(m ollamaMessage, more object) {
		m.Role = "assistant"
		line := object{"model": a.model, "created_at": "2026-01-02T03:04:05Z", "message": m, "done": false}
		for k, v := range more {
			line[k] = v
		}
		_ = json.NewEncoder(w).Encode(line)
		w.(http.Flusher).Flush()
	}
	if turn.Think != "" {
		send(ollamaMessage{Thinking: turn.Think}, nil)
	}
	for _, piece := range turn.Say {
		send(ollamaMessage{Content: fill(piece, a.text)}, nil)
	}
	if turn.Hang {
		<-r.Context().Done()
		return
	}
	for i, call := range turn.Calls {
		var out ollamaCall
		out.ID, out.Function.Index, out.Function.Name, out.Function.Arguments = string(call.ID), i, call.Name, call.Arguments
		send(ollamaMessage{ToolCalls: []ollamaCall{out}}, nil)
	}
	reason := "stop"
	if turn.Stop == llm.StopLength {
		reason = "length"
	}
	send(ollamaMessage{}, object{
		"done": true, "done_reason": reason, "total_duration": 5, "prompt_eval_count": turn.Usage.InputTokens, "eval_count": turn.Usage.OutputTokens,
	})
}
