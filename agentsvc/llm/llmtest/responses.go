package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"stoa/agentsvc/llm"
)

// responses is OpenAI's responses API.
var responses = dialect{key: bearer, read: readResponses, play: playResponses, refuse: chat.refuse}

// responseItem is one item of a request's input.
type responseItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    string          `json:"output"`
}

func readResponses(_ *http.Request, body []byte) (asked, error) {
	var req struct {
		Model  string         `json:"model"`
		Stream bool           `json:"stream"`
		Store  *bool          `json:"store"`
		Input  []responseItem `json:"input"`
		Tools  []struct {
			Type, Name string
			Parameters map[string]any
			Strict     *bool
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return asked{}, err
	}
	if req.Model == "" || !req.Stream || len(req.Input) == 0 || req.Store == nil || *req.Store {
		return asked{}, errors.New("model, stream and input are required, and store must be off")
	}
	for _, t := range req.Tools {
		if t.Type != "function" || t.Name == "" || t.Parameters == nil || t.Strict == nil {
			return asked{}, errors.New("a tool is malformed")
		}
	}
	a := asked{model: req.Model, usage: true}
	called := map[string]string{}
	for i, item := range req.Input {
		a.tool = ""
		var err error
		switch item.Type {
		case "", "message":
			a.text, err = item.text()
		case "function_call":
			if item.CallID == "" || item.Name == "" || !json.Valid([]byte(item.Arguments)) {
				err = errors.New("malformed call")
			}
			called[item.CallID] = item.Name
		case "function_call_output":
			a.text, a.tool = item.Output, called[item.CallID]
			if a.tool == "" {
				err = errors.New("no tool call found for its call_id")
			}
		default:
			err = fmt.Errorf("unknown type %q", item.Type)
		}
		if err != nil {
			return asked{}, fmt.Errorf("input[%d]: %w", i, err)
		}
	}
	return a, nil
}

func (i responseItem) text() (string, error) {
	var whole string
	if json.Unmarshal(i.Content, &whole) == nil {
		return whole, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(i.Content, &parts); err != nil || len(parts) == 0 || i.Role != "user" {
		return "", errors.New("malformed content")
	}
	for _, p := range parts {
		if p.Type != "input_text" && p.Type != "input_image" {
			return "", fmt.Errorf("unknown part %q", p.Type)
		}
		whole += p.Text
	}
	return whole, nil
}

func playResponses(w http.ResponseWriter, r *http.Request, turn Turn, a asked) {
	s := newSSE(w)
	send := func(kind string, more object) {
		more["type"], more["sequence_number"] = kind, 0
		s.event(kind, more)
	}
	send("response.created", object{"response": object{"id": "resp_1", "object": "response", "status": "in_progress", "model": a.model, "output": []any{}}})
	place := 0
	item := func(added object) func() {
		at := place
		place++
		send("response.output_item.added", object{"output_index": at, "item": added})
		return func() { send("response.output_item.done", object{"output_index": at, "item": added}) }
	}
	if turn.Think != "" {
		done := item(object{"type": "reasoning", "id": "rs_1", "summary": []any{}})
		send("response.reasoning_summary_text.delta", object{"item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": turn.Think})
		done()
	}
	if len(turn.Say) > 0 {
		kind, done := "response.output_text.delta", item(object{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{}})
		if turn.Stop == llm.StopRefusal {
			kind = "response.refusal.delta"
		}
		for _, piece := range turn.Say {
			send(kind, object{"item_id": "msg_1", "output_index": place - 1, "content_index": 0, "delta": fill(piece, a.text)})
		}
		if turn.Hang {
			<-r.Context().Done()
			return
		}
		done()
	}
	for _, call := range turn.Calls {
		done := item(object{"type": "function_call", "id": "fc_1", "call_id": id(call, "call_"), "name": call.Name, "arguments": ""})
		for _, cut := range thirds(string(call.Arguments)) {
			send("response.function_call_arguments.delta", object{"item_id": "fc_1", "output_index": place - 1, "delta": cut})
		}
		done()
	}
	u := turn.Usage
	end := object{"id": "resp_1", "object": "response", "status": "completed", "model": a.model, "output": []any{}, "error": nil, "usage": object{
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"input_tokens_details":  object{"cached_tokens": u.CacheReadTokens, "cache_write_tokens": u.CacheWriteTokens},
		"output_tokens_details": object{"reasoning_tokens": u.ReasoningTokens},
	}}
	kind := "response.completed"
	if turn.Stop == llm.StopLength {
		kind, end["status"], end["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": "max_output_tokens"}
	}
	send(kind, object{"response": end})
}
