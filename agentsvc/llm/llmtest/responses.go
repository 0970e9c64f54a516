package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"stoa/agentsvc/llm"
)

// responsesDialect is OpenAI's responses API.
var responsesDialect = dialect{apiKey: bearerToken, readRequest: readResponses, writeReply: writeResponsesReply, writeError: chatDialect.writeError}

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

// readResponses is the readRequest function of the dialect.
func readResponses(_ *http.Request, body []byte) (parsedRequest, error) {
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
		return parsedRequest{}, err
	}
	if req.Model == "" || !req.Stream || len(req.Input) == 0 || req.Store == nil || *req.Store {
		return parsedRequest{}, errors.New("model, stream and input are required, and store must be off")
	}
	for _, t := range req.Tools {
		if t.Type != "function" || t.Name == "" || t.Parameters == nil || t.Strict == nil {
			return parsedRequest{}, errors.New("a tool is malformed")
		}
	}
	a := parsedRequest{model: req.Model, includeUsage: true}
	called := map[string]string{}
	for i, item := range req.Input {
		a.tool = ""
		var err error
		switch item.Type {
		case "", "message":
			a.text, err = item.contentText()
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
			return parsedRequest{}, fmt.Errorf("input[%d]: %w", i, err)
		}
	}
	return a, nil
}

// contentText returns the text of an item's content, which is a string or a list of parts.
func (i responseItem) contentText() (string, error) {
	var fullText string
	if json.Unmarshal(i.Content, &fullText) == nil {
		return fullText, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(i.Content, &parts); err != nil || len(parts) == 0 || i.Role != "user" {
		return "", errors.New("malformed content")
	}
	for _, p := range parts {
		if p.Type != "input_text" && p.Type != "input_image" {
			return "", fmt.Errorf("unknown part %q", p.Type)
		}
		fullText += p.Text
	}
	return fullText, nil
}

// writeResponsesReply is the writeReply function of the dialect.
func writeResponsesReply(w http.ResponseWriter, r *http.Request, reply Reply, a parsedRequest) {
	s := newSSEWriter(w)
	send := func(kind string, more object) {
		more["type"], more["sequence_number"] = kind, 0
		s.writeEvent(kind, more)
	}
	send("response.created", object{"response": object{"id": "resp_1", "object": "response", "status": "in_progress", "model": a.model, "output": []any{}}})
	index := 0
	item := func(added object) func() {
		at := index
		index++
		send("response.output_item.added", object{"output_index": at, "item": added})
		return func() { send("response.output_item.done", object{"output_index": at, "item": added}) }
	}
	if reply.Thought != "" {
		done := item(object{"type": "reasoning", "id": "rs_1", "summary": []any{}})
		send("response.reasoning_summary_text.delta", object{"item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": reply.Thought})
		done()
	}
	if len(reply.Pieces) > 0 {
		kind, done := "response.output_text.delta", item(object{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{}})
		if reply.Stop == llm.StopRefusal {
			kind = "response.refusal.delta"
		}
		for _, piece := range reply.Pieces {
			send(kind, object{"item_id": "msg_1", "output_index": index - 1, "content_index": 0, "delta": fillResult(piece, a.text)})
		}
		if reply.Hang {
			<-r.Context().Done()
			return
		}
		done()
	}
	for _, call := range reply.Calls {
		done := item(object{"type": "function_call", "id": "fc_1", "call_id": callID(call, "call_"), "name": call.Name, "arguments": ""})
		for _, cut := range splitInThree(string(call.Arguments)) {
			send("response.function_call_arguments.delta", object{"item_id": "fc_1", "output_index": index - 1, "delta": cut})
		}
		done()
	}
	u := reply.Usage
	end := object{"id": "resp_1", "object": "response", "status": "completed", "model": a.model, "output": []any{}, "error": nil, "usage": object{
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"input_tokens_details":  object{"cached_tokens": u.CacheReadTokens, "cache_write_tokens": u.CacheWriteTokens},
		"output_tokens_details": object{"reasoning_tokens": u.ReasoningTokens},
	}}
	kind := "response.completed"
	if reply.Stop == llm.StopLength {
		kind, end["status"], end["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": "max_output_tokens"}
	}
	send(kind, object{"response": end})
}
