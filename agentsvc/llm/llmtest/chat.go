package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// chatRequest is the body of a chat completion, as far as a script needs it.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

// chatMessage is a message of a request. Content is a string or a list of parts.
type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

// chatCall is a tool call, or a piece of one in a stream.
type chatCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// chatDialect is OpenAI's chat completions API.
var chatDialect = dialect{apiKey: bearerToken, readRequest: readChat, writeReply: writeChatReply, writeError: jsonErrorWriter(func(_ int, message string) any {
	return object{"error": object{"message": message, "type": "error", "code": message}}
})}

// readChat is the readRequest function of the dialect.
func readChat(_ *http.Request, body []byte) (parsedRequest, error) {
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return parsedRequest{}, err
	}
	text, tool, err := req.checkMessages()
	return parsedRequest{model: req.Model, text: text, tool: tool, includeUsage: req.StreamOptions.IncludeUsage}, err
}

// writeChatReply is the writeReply function of the dialect.
func writeChatReply(w http.ResponseWriter, r *http.Request, reply Reply, a parsedRequest) {
	stream := chatStream{sseWriter: newSSEWriter(w), model: a.model}
	stream.writeReply(r, reply, a.text)
	if reply.Hang {
		return
	}
	if a.includeUsage {
		stream.writeUsage(reply.Usage)
	}
	stream.writeData("[DONE]")
}

// checkMessages returns an error where a real server would refuse the messages, else the text that the conversation
// ends with, and the tool whose result that is.
func (r chatRequest) checkMessages() (text, tool string, err error) {
	if r.Model == "" || len(r.Messages) == 0 || !r.Stream {
		return "", "", errors.New("model, messages and stream are required")
	}
	for _, t := range r.Tools {
		if t.Type != "function" || t.Function.Name == "" || !json.Valid(t.Function.Parameters) {
			return "", "", errors.New("a tool is malformed")
		}
	}
	pendingCalls := map[string]string{} // calls without a result yet: id to name
	for i, m := range r.Messages {
		// The API requires a result for each call before any other message.
		if m.Role != "tool" && len(pendingCalls) > 0 {
			return "", "", fmt.Errorf("messages[%d] comes before all tool results", i)
		}
		tool = ""
		switch m.Role {
		case "system", "user":
		case "assistant":
			for _, c := range m.ToolCalls {
				if c.ID == "" || c.Type != "function" || c.Function.Name == "" || !json.Valid([]byte(c.Function.Arguments)) {
					return "", "", fmt.Errorf("messages[%d] has a malformed tool call", i)
				}
				pendingCalls[c.ID] = c.Function.Name
			}
		case "tool":
			// A result must refer to a call of the last assistant message.
			if tool = pendingCalls[m.ToolCallID]; tool == "" {
				return "", "", fmt.Errorf("messages[%d] answers no tool call", i)
			}
			delete(pendingCalls, m.ToolCallID)
		default:
			return "", "", fmt.Errorf("messages[%d] has the unknown role %q", i, m.Role)
		}
		if text, err = m.contentText(); err != nil {
			return "", "", fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	return text, tool, nil
}

// contentText returns the text of a message's content, which is a string or a list of parts.
func (m chatMessage) contentText() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		if len(m.ToolCalls) == 0 {
			return "", errors.New("no content")
		}
		return "", nil
	}
	var fullText string
	if json.Unmarshal(m.Content, &fullText) == nil {
		return fullText, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(m.Content, &parts); err != nil || len(parts) == 0 {
		return "", errors.New("malformed content")
	}
	for _, p := range parts {
		if !slices.Contains([]string{"text", "image_url"}, p.Type) {
			return "", fmt.Errorf("unknown part %q", p.Type)
		}
		fullText += p.Text
	}
	return fullText, nil
}

// chatStream writes chat.completion.chunk events.
type chatStream struct {
	sseWriter
	model string
}

// writeChunk writes one event with the fields of more added.
func (s chatStream) writeChunk(choices []object, more object) {
	event := object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": s.model, "choices": choices}
	for k, v := range more {
		event[k] = v
	}
	s.writeJSON(event)
}

// writeDelta writes an event with one choice.
func (s chatStream) writeDelta(delta object, finish any) {
	s.writeChunk([]object{{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
}

// writeReply writes the text, the calls and the finish reason of a reply.
func (s chatStream) writeReply(r *http.Request, reply Reply, result string) {
	s.writeDelta(object{"role": "assistant", "content": ""}, nil)
	field, finish := "content", "stop"
	if reply.Stop == llm.StopRefusal {
		field = "refusal"
	}
	for _, piece := range reply.Pieces {
		s.writeDelta(object{field: fillResult(piece, result)}, nil)
	}
	if reply.Hang {
		<-r.Context().Done()
		return
	}
	for i, call := range reply.Calls {
		s.writeCall(i, call)
		finish = "tool_calls"
	}
	if reply.Stop == llm.StopLength {
		finish = "length"
	}
	s.writeDelta(object{}, finish)
}

// writeCall writes a tool call in pieces: its name, then its arguments in three, as the vendor streams them.
func (s chatStream) writeCall(index int, call agentsvc.ToolCall) {
	piece := chatCall{Index: index, ID: callID(call, "call_"), Type: "function"}
	piece.Function.Name = call.Name
	s.writeDelta(object{"tool_calls": []chatCall{piece}}, nil)
	for _, cut := range splitInThree(string(call.Arguments)) {
		continuation := chatCall{Index: index}
		continuation.Function.Arguments = cut
		s.writeDelta(object{"tool_calls": []chatCall{continuation}}, nil)
	}
}

// writeUsage writes the last event before [DONE], which has no choices.
func (s chatStream) writeUsage(u agentsvc.Usage) {
	s.writeChunk([]object{}, object{"usage": object{
		"prompt_tokens":             u.InputTokens,
		"completion_tokens":         u.OutputTokens,
		"total_tokens":              u.InputTokens + u.OutputTokens,
		"prompt_tokens_details":     object{"cached_tokens": u.CacheReadTokens, "cache_write_tokens": u.CacheWriteTokens},
		"completion_tokens_details": object{"reasoning_tokens": u.ReasoningTokens},
	}})
}
