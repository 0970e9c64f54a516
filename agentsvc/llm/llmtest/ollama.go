package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"stoa/agentsvc/llm"
)

// ollamaDialect is Ollama's chat API. A request without a key is accepted, as by a real server.
var ollamaDialect = dialect{
	apiKey: func(r *http.Request) string {
		if r.Header.Get("Authorization") == "" {
			return Key
		}
		return bearerToken(r)
	},
	readRequest: readOllama, writeReply: writeOllamaReply,
	writeError: jsonErrorWriter(func(_ int, message string) any { return object{"error": message} }),
}

// ollamaMessage is a message of a request or an answer.
type ollamaMessage struct {
	Role      string       `json:"role"`
	Content   string       `json:"content"`
	Thinking  string       `json:"thinking,omitempty"`
	Images    []string     `json:"images,omitempty"`
	ToolName  string       `json:"tool_name,omitempty"`
	ToolCalls []ollamaCall `json:"tool_calls,omitempty"`
}

// ollamaCall is a tool call; its arguments are an object, not text.
type ollamaCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// readOllama is the readRequest function of the dialect.
func readOllama(_ *http.Request, body []byte) (parsedRequest, error) {
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
		return parsedRequest{}, err
	}
	if req.Model == "" || len(req.Messages) == 0 || req.Stream != nil && !*req.Stream {
		return parsedRequest{}, errors.New("model and messages are required, and only streams are served")
	}
	for _, t := range req.Tools {
		if t.Type != "function" || t.Function.Name == "" || t.Function.Parameters.Type != "object" {
			return parsedRequest{}, errors.New("a tool is malformed")
		}
	}
	a := parsedRequest{model: req.Model, includeUsage: true}
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
			return parsedRequest{}, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	return a, nil
}

// writeOllamaReply is the writeReply function of the dialect.
func writeOllamaReply(w http.ResponseWriter, r *http.Request, reply Reply, a parsedRequest) {
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
	if reply.Thought != "" {
		send(ollamaMessage{Thinking: reply.Thought}, nil)
	}
	for _, piece := range reply.Pieces {
		send(ollamaMessage{Content: fillResult(piece, a.text)}, nil)
	}
	if reply.Hang {
		<-r.Context().Done()
		return
	}
	for i, call := range reply.Calls {
		var out ollamaCall
		out.ID, out.Function.Index, out.Function.Name, out.Function.Arguments = string(call.ID), i, call.Name, call.Arguments
		send(ollamaMessage{ToolCalls: []ollamaCall{out}}, nil)
	}
	reason := "stop"
	if reply.Stop == llm.StopLength {
		reason = "length"
	}
	send(ollamaMessage{}, object{
		"done": true, "done_reason": reason, "total_duration": 5, "prompt_eval_count": reply.Usage.InputTokens, "eval_count": reply.Usage.OutputTokens,
	})
}
