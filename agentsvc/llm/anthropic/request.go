package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// vendorName seals the thoughts of this vendor, see upstream.SealThought.
const vendorName = "anthropic"

// The roles of messages.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// applyTokenLimits sets the defaults of MaxTokens and ThinkingBudget and checks them.
func (o *Options) applyTokenLimits() error {
	if o.Thinking && o.ThinkingBudget == 0 {
		o.ThinkingBudget = MinThinking
	}
	if o.Thinking && o.ThinkingBudget < MinThinking {
		return agentsvc.NewInvalidError("thinking.budget_tokens", "must be at least %d", MinThinking)
	}
	if !o.Thinking {
		o.ThinkingBudget = 0
	}
	switch {
	case o.MaxTokens > 0:
	// The API counts thinking as output: the budget is added, so that the answer keeps its length.
	case hasThinkingBudget(o.Model):
		o.MaxTokens = MaxTokens + o.ThinkingBudget
	default:
		o.MaxTokens = max(MaxTokensThinking, MaxTokens+o.ThinkingBudget)
	}
	// A rule of the API.
	if o.ThinkingBudget >= o.MaxTokens {
		return agentsvc.NewInvalidError("thinking.budget_tokens", "must be less than max_tokens, %d", o.MaxTokens)
	}
	return nil
}

// encodeRequest returns the body of a request for req. Consecutive entries of one role become one message, since the API
// requires alternating roles. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeRequest(req llm.Request) (messagesRequest, error) {
	out := messagesRequest{Model: p.opts.Model, MaxTokens: req.TokenLimit(p.opts.MaxTokens), Stream: true, Messages: []message{}}
	if err := llm.FileSupportOf("anthropic").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	switch {
	// The API accepts no temperature together with thinking.
	case p.opts.Thinking && canThink(req.Conversation):
		out.Thinking = p.thinkingConfig()
		out.OutputConfig.Effort = p.effort
	case p.opts.Temperature != nil && !p.opts.Thinking:
		out.Temperature = p.opts.Temperature
	}
	system := req.SystemText()
	if schema, ok := p.outputSchema(req); ok {
		system = req.System
		out.OutputConfig.Format = &outputFormat{Type: "json_schema", Schema: schema}
	}
	// The prompt is marked for the cache: it is the same in each step of a turn.
	if strings.TrimSpace(system) != "" {
		out.System = []contentBlock{{Type: "text", Text: system, CacheControl: &cacheControl{Type: "ephemeral"}}}
	}
	for i, spec := range req.Tools {
		tool, err := encodeTool(spec)
		if err != nil {
			return out, err
		}
		// A cache mark covers everything before it: one on the last tool suffices for all.
		if i == len(req.Tools)-1 {
			tool.CacheControl = &cacheControl{Type: "ephemeral"}
		}
		out.Tools = append(out.Tools, tool)
	}
	for _, e := range req.Conversation {
		role, blocks := encodeEntry(e)
		// The API refuses a message without content.
		if len(blocks) == 0 {
			continue
		}
		// Several tool results, or results and the next user message, are consecutive entries of the user's role.
		if last := len(out.Messages) - 1; last >= 0 && out.Messages[last].Role == role {
			out.Messages[last].Content = append(out.Messages[last].Content, blocks...)
			continue
		}
		out.Messages = append(out.Messages, message{Role: role, Content: blocks})
	}
	return out, nil
}

// canThink reports whether the API permits thinking for this request. In the middle of a turn it requires the thoughts
// of the model's last tool calls, which are missing if another model made the calls.
func canThink(conversation []agentsvc.Entry) bool {
	for _, e := range slices.Backward(conversation) {
		switch {
		case e.Message == nil:
		case e.Message.Role != agentsvc.RoleAgent || len(e.Message.ToolCalls) == 0:
			return true
		default:
			// The last agent message made calls: they must come with this vendor's thoughts.
			return len(decodeThoughts(e.Message.ToolCalls)) > 0
		}
	}
	return true
}

// encodeTool returns a tool definition.
func encodeTool(spec agentsvc.ToolSpec) (toolDefinition, error) {
	schema, err := upstream.ParameterSchema(spec)
	if err != nil {
		return toolDefinition{}, err
	}
	// The API accepts no other type, and no properties that are null.
	schema["type"] = "object"
	if schema["properties"] == nil {
		delete(schema, "properties")
	}
	return toolDefinition{Name: spec.Name, Description: spec.Description, InputSchema: schema}, nil
}

// encodeEntry returns the role and the content blocks of an entry. Files that the model made are left out, and so is
// blank text, which the API refuses.
func encodeEntry(e agentsvc.Entry) (string, []contentBlock) {
	if r := e.Result; r != nil {
		block := contentBlock{Type: "tool_result", ToolUseID: string(r.Call), IsError: &r.Failed}
		// The API refuses an empty text block, but accepts a result without content.
		if r.Text != "" {
			block.Content = []contentBlock{{Type: "text", Text: r.Text}}
		}
		return roleUser, []contentBlock{block}
	}
	if e.Message == nil {
		return "", nil
	}
	var blocks []contentBlock
	if e.Message.Role == agentsvc.RoleAgent {
		// Thoughts come first in the message, as the API requires.
		blocks = decodeThoughts(e.Message.ToolCalls)
	}
	for _, part := range e.Message.Parts {
		if text := upstream.PartsText(part); strings.TrimSpace(text) != "" {
			blocks = append(blocks, contentBlock{Type: "text", Text: text})
		}
		if f := part.File; f != nil && e.Message.Role != agentsvc.RoleAgent {
			blocks = append(blocks, contentBlock{Type: "image", Source: &imageSource{
				Type: "base64", MediaType: llm.NormalizeMediaType(f.MediaType), Data: base64.StdEncoding.EncodeToString(f.Bytes),
			}})
		}
	}
	if e.Message.Role != agentsvc.RoleAgent {
		return roleUser, blocks
	}
	for _, call := range e.Message.ToolCalls {
		// Calls come after the text.
		blocks = append(blocks, contentBlock{Type: "tool_use", ID: string(call.ID), Name: call.Name, Input: upstream.CallArguments(call)})
	}
	return roleAssistant, blocks
}

// sealedThought is a stored block of thought. The API checks the signature, so the text must be returned unchanged.
type sealedThought struct {
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// decodeThoughts returns the blocks of thought before the calls, which the first call carries.
func decodeThoughts(calls []agentsvc.ToolCall) []contentBlock {
	if len(calls) == 0 {
		return nil
	}
	text, ok := upstream.UnsealThought(vendorName, calls[0])
	var list []sealedThought
	if !ok || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	var blocks []contentBlock
	for _, t := range list {
		if t.Redacted != "" {
			blocks = append(blocks, contentBlock{Type: "redacted_thinking", Data: t.Redacted})
			continue
		}
		blocks = append(blocks, contentBlock{Type: "thinking", Thinking: &t.Thinking, Signature: &t.Signature})
	}
	return blocks
}
