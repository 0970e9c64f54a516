package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc/llm"
)

// messagesDialect is Anthropic's messages API.
var messagesDialect = dialect{
	apiKey:      func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
	readRequest: readMessages, writeReply: writeMessagesReply,
	writeError: jsonErrorWriter(func(status int, message string) any {
		kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}[status]
		if kind == "" {
			kind = "api_error"
		}
		return object{"type": "error", "error": object{"type": kind, "message": message}}
	}),
}

// thoughtSignature is the signature of the server's thoughts. A request that returns a thought without it is refused.
const thoughtSignature = "c2lnbmVk"

// messagesRequest is the body of a request, as far as a script needs it.
type messagesRequest struct {
	Model       string          `json:"model"`
	MaxTokens   int             `json:"max_tokens"`
	Stream      bool            `json:"stream"`
	Temperature *float64        `json:"temperature"`
	System      []messagesBlock `json:"system"`
	Thinking    struct {
		Type         string `json:"type"`
		BudgetTokens int    `json:"budget_tokens"`
	} `json:"thinking"`
	Messages []messagesMessage `json:"messages"`
	Tools    []struct {
		Name        string         `json:"name"`
		InputSchema map[string]any `json:"input_schema"`
	} `json:"tools"`
}

// messagesMessage is a message of a request: roles alternate.
type messagesMessage struct {
	Role    string          `json:"role"`
	Content []messagesBlock `json:"content"`
}

// messagesBlock is a block of content; Type says which fields are used.
type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     map[string]any  `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   []messagesBlock `json:"content"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Source    struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// readMessages is the readRequest function of the dialect. It enforces the API's rules for thinking, roles and results.
func readMessages(r *http.Request, body []byte) (parsedRequest, error) {
	var req messagesRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return parsedRequest{}, err
	}
	think := req.Thinking.Type == "enabled"
	switch {
	case r.Header.Get("Anthropic-Version") == "":
		return parsedRequest{}, errors.New("anthropic-version: header is required")
	case req.Model == "" || req.MaxTokens < 1 || !req.Stream || len(req.Messages) == 0:
		return parsedRequest{}, errors.New("model, max_tokens, messages and stream are required")
	case think && (req.Thinking.BudgetTokens < 1024 || req.Thinking.BudgetTokens >= req.MaxTokens):
		return parsedRequest{}, errors.New("max_tokens must be greater than thinking.budget_tokens, which must be at least 1024")
	case think && req.Temperature != nil && *req.Temperature != 1:
		return parsedRequest{}, errors.New("temperature may only be set to 1 when thinking is enabled")
	case req.Temperature != nil && (*req.Temperature < 0 || *req.Temperature > 1):
		return parsedRequest{}, errors.New("temperature: range: 0..1")
	}
	for _, t := range req.Tools {
		if t.Name == "" || t.InputSchema["type"] != "object" {
			return parsedRequest{}, errors.New("a tool is malformed")
		}
	}
	a := parsedRequest{model: req.Model, thinking: think, includeUsage: true}
	pendingCalls := map[string]string{} // calls without a result yet: id to name
	for i, m := range req.Messages {
		// Roles alternate, beginning with the user's.
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			return parsedRequest{}, fmt.Errorf("messages.%d: want content of role %s", i, want)
		}
		// With thinking on, the calls of the present turn must come with their thoughts.
		if think && i >= len(req.Messages)-2 && m.Role == "assistant" && m.hasCalls() && m.Content[0].Type != "thinking" {
			return parsedRequest{}, fmt.Errorf("messages.%d: expected a thinking block first", i)
		}
		waiting := len(pendingCalls) > 0
		a.text, a.tool = "", ""
		for j, b := range m.Content {
			if err := b.checkBlock(m.Role, pendingCalls); err != nil {
				return parsedRequest{}, fmt.Errorf("messages.%d.content.%d: %w", i, j, err)
			}
			if b.Type == "tool_result" {
				a.tool = pendingCalls[b.ToolUseID]
				delete(pendingCalls, b.ToolUseID)
				b.Text = ""
				for _, c := range b.Content {
					b.Text += c.Text
				}
				a.text = ""
			}
			a.text += b.Text
		}
		if waiting && len(pendingCalls) > 0 {
			return parsedRequest{}, fmt.Errorf("messages.%d: tool_use ids were found without tool_result blocks immediately after", i)
		}
	}
	return a, nil
}

// hasCalls reports whether the message calls tools.
func (m messagesMessage) hasCalls() bool {
	return slices.ContainsFunc(m.Content, func(b messagesBlock) bool { return b.Type == "tool_use" })
}

// checkBlock returns an error where the API would refuse the block. It adds tool calls to pendingCalls.
func (b messagesBlock) checkBlock(role string, pendingCalls map[string]string) error {
	switch role + " " + b.Type {
	case "user text", "assistant text":
		if strings.TrimSpace(b.Text) == "" {
			return errors.New("text content blocks must contain non-whitespace text")
		}
	case "user image":
		if raw, err := base64.StdEncoding.DecodeString(b.Source.Data); b.Source.Type != "base64" || err != nil || len(raw) == 0 || b.Source.MediaType == "" {
			return errors.New("malformed image")
		}
	case "user tool_result":
		if pendingCalls[b.ToolUseID] == "" {
			return errors.New("unexpected tool_use_id")
		}
	case "assistant tool_use":
		if b.ID == "" || b.Name == "" || b.Input == nil {
			return errors.New("malformed tool_use")
		}
		pendingCalls[b.ID] = b.Name
	case "assistant thinking":
		if b.Signature != thoughtSignature {
			return errors.New("invalid signature in thinking block")
		}
	default:
		return fmt.Errorf("unexpected %s of role %s", b.Type, role)
	}
	return nil
}

// writeMessagesReply is the writeReply function of the dialect.
func writeMessagesReply(w http.ResponseWriter, r *http.Request, reply Reply, a parsedRequest) {
	s := newSSEWriter(w)
	send := func(kind string, more object) {
		more["type"] = kind
		s.writeEvent(kind, more)
	}
	u := reply.Usage
	usage := object{
		"input_tokens": u.InputTokens - u.CacheReadTokens - u.CacheWriteTokens, "cache_read_input_tokens": u.CacheReadTokens,
		"cache_creation_input_tokens": u.CacheWriteTokens, "output_tokens": 1,
	}
	send("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": a.model, "content": []any{}, "stop_reason": nil, "usage": usage,
	}})
	send("ping", object{})
	index := 0
	block := func(start object, deltas ...object) {
		send("content_block_start", object{"index": index, "content_block": start})
		for _, d := range deltas {
			send("content_block_delta", object{"index": index, "delta": d})
		}
	}
	stop := func() {
		send("content_block_stop", object{"index": index})
		index++
	}
	if reply.Thought != "" && a.thinking {
		block(object{"type": "thinking", "thinking": "", "signature": ""},
			object{"type": "thinking_delta", "thinking": reply.Thought}, object{"type": "signature_delta", "signature": thoughtSignature})
		stop()
	}
	if len(reply.Pieces) > 0 {
		var deltas []object
		for _, piece := range reply.Pieces {
			deltas = append(deltas, object{"type": "text_delta", "text": fillResult(piece, a.text)})
		}
		block(object{"type": "text", "text": ""}, deltas...)
		if reply.Hang {
			<-r.Context().Done()
			return
		}
		stop()
	}
	reason := "end_turn"
	for _, call := range reply.Calls {
		reason = "tool_use"
		var deltas []object
		for _, cut := range splitInThree(string(call.Arguments)) {
			deltas = append(deltas, object{"type": "input_json_delta", "partial_json": cut})
		}
		block(object{"type": "tool_use", "id": callID(call, "toolu_"), "name": call.Name, "input": object{}}, deltas...)
		stop()
	}
	switch reply.Stop {
	case llm.StopLength:
		reason = "max_tokens"
	case llm.StopRefusal:
		reason = "refusal"
	}
	send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{
		"output_tokens": u.OutputTokens, "output_tokens_details": object{"thinking_tokens": u.ReasoningTokens},
	}})
	send("message_stop", object{})
}
