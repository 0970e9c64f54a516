package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// vendorName seals the thoughts of this vendor, see upstream.SealThought.
const vendorName = "anthropic"

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

// encodeRequest returns the API's parameters for req. Consecutive entries of one role become one message, since the API
// requires alternating roles. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeRequest(req llm.Request) (anthropic.MessageNewParams, error) {
	out := anthropic.MessageNewParams{Model: p.opts.Model, MaxTokens: req.TokenLimit(p.opts.MaxTokens)}
	if err := llm.FileSupportOf("anthropic").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	switch {
	// The API accepts no temperature together with thinking.
	case p.opts.Thinking && canThink(req.Conversation):
		out.Thinking = p.thinkingConfig()
		out.OutputConfig.Effort = p.effort
	case p.opts.Temperature != nil && !p.opts.Thinking:
		out.Temperature = anthropic.Float(*p.opts.Temperature)
	}
	system := req.SystemText()
	if schema, ok := p.outputSchema(req); ok {
		system = req.System
		out.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: schema}
	}
	// The prompt is marked for the cache: it is the same in each step of a turn.
	if strings.TrimSpace(system) != "" {
		out.System = []anthropic.TextBlockParam{{Text: system, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	for i, spec := range req.Tools {
		tool, err := encodeTool(spec)
		if err != nil {
			return out, err
		}
		// A cache mark covers everything before it: one on the last tool suffices for all.
		if i == len(req.Tools)-1 {
			tool.CacheControl = anthropic.NewCacheControlEphemeralParam()
		}
		out.Tools = append(out.Tools, anthropic.ToolUnionParam{OfTool: &tool})
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
		out.Messages = append(out.Messages, anthropic.MessageParam{Role: role, Content: blocks})
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

// encodeTool returns a tool definition. The API's type has fields for the properties; the rest of the schema goes into
// extra fields.
func encodeTool(spec agentsvc.ToolSpec) (anthropic.ToolParam, error) {
	schema, err := upstream.ParameterSchema(spec)
	if err != nil {
		return anthropic.ToolParam{}, err
	}
	tool := anthropic.ToolParam{Name: spec.Name}
	if spec.Description != "" {
		tool.Description = anthropic.String(spec.Description)
	}
	// The library writes "type": "object" itself.
	tool.InputSchema.Properties = schema["properties"]
	delete(schema, "properties")
	delete(schema, "type")
	tool.InputSchema.ExtraFields = schema
	return tool, nil
}

// encodeEntry returns the role and the content blocks of an entry. Files that the model made are left out, and so is
// blank text, which the API refuses.
func encodeEntry(e agentsvc.Entry) (anthropic.MessageParamRole, []anthropic.ContentBlockParamUnion) {
	if r := e.Result; r != nil {
		block := anthropic.NewToolResultBlock(string(r.Call), r.Text, r.Failed)
		// The API refuses an empty text block, but accepts a result without content.
		if r.Text == "" {
			block.OfToolResult.Content = nil
		}
		return anthropic.MessageParamRoleUser, []anthropic.ContentBlockParamUnion{block}
	}
	if e.Message == nil {
		return "", nil
	}
	var blocks []anthropic.ContentBlockParamUnion
	if e.Message.Role == agentsvc.RoleAgent {
		// Thoughts come first in the message, as the API requires.
		blocks = decodeThoughts(e.Message.ToolCalls)
	}
	for _, part := range e.Message.Parts {
		if text := upstream.PartsText(part); strings.TrimSpace(text) != "" {
			blocks = append(blocks, anthropic.NewTextBlock(text))
		}
		if f := part.File; f != nil && e.Message.Role != agentsvc.RoleAgent {
			blocks = append(blocks, anthropic.NewImageBlockBase64(llm.NormalizeMediaType(f.MediaType), base64.StdEncoding.EncodeToString(f.Bytes)))
		}
	}
	if e.Message.Role != agentsvc.RoleAgent {
		return anthropic.MessageParamRoleUser, blocks
	}
	for _, call := range e.Message.ToolCalls {
		// Calls come after the text.
		blocks = append(blocks, anthropic.NewToolUseBlock(string(call.ID), upstream.CallArguments(call), call.Name))
	}
	return anthropic.MessageParamRoleAssistant, blocks
}

// sealedThought is a stored block of thought. The API checks the signature, so the text must be returned unchanged.
type sealedThought struct {
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// decodeThoughts returns the blocks of thought before the calls, which the first call carries.
func decodeThoughts(calls []agentsvc.ToolCall) []anthropic.ContentBlockParamUnion {
	if len(calls) == 0 {
		return nil
	}
	text, ok := upstream.UnsealThought(vendorName, calls[0])
	var list []sealedThought
	if !ok || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	var blocks []anthropic.ContentBlockParamUnion
	for _, t := range list {
		if t.Redacted != "" {
			blocks = append(blocks, anthropic.NewRedactedThinkingBlock(t.Redacted))
			continue
		}
		blocks = append(blocks, anthropic.NewThinkingBlock(t.Signature, t.Thinking))
	}
	return blocks
}
