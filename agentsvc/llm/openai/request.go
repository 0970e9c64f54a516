package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// maxFile is the largest file that the API takes.
const maxFile = 20 << 20

// images are the media types that the API takes.
var images = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// params puts req into the API's words. An error is an [*llm.Error].
func (p *Provider) params(req llm.Request) (openai.ChatCompletionNewParams, error) {
	out := openai.ChatCompletionNewParams{
		Model:         p.opts.Model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if p.opts.Temperature != nil {
		out.Temperature = openai.Float(*p.opts.Temperature)
	}
	if n := p.opts.MaxTokens; n > 0 && p.opts.BaseURL == BaseURL {
		// OpenAI's reasoning models refuse max_tokens; many compatible servers know nothing else.
		out.MaxCompletionTokens = openai.Int(n)
	} else if n > 0 {
		out.MaxTokens = openai.Int(n)
	}
	for _, spec := range req.Tools {
		tool, err := p.tool(spec)
		if err != nil {
			return out, err
		}
		out.Tools = append(out.Tools, tool)
	}
	if req.System != "" {
		out.Messages = append(out.Messages, openai.SystemMessage(req.System))
	}
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			out.Messages = append(out.Messages, openai.ToolMessage(e.Result.Text, string(e.Result.Call)))
		case e.Message == nil:
		case e.Message.Role == agentsvc.RoleAgent:
			out.Messages = append(out.Messages, agentMessages(*e.Message)...)
		default:
			m, err := p.userMessage(*e.Message)
			if err != nil {
				return out, err
			}
			out.Messages = append(out.Messages, m)
		}
	}
	return out, nil
}

func (p *Provider) tool(spec agentsvc.ToolSpec) (openai.ChatCompletionToolUnionParam, error) {
	fn := shared.FunctionDefinitionParam{Name: spec.Name}
	if spec.Description != "" {
		fn.Description = openai.String(spec.Description)
	}
	if len(spec.Parameters) > 0 {
		if err := json.Unmarshal(spec.Parameters, &fn.Parameters); err != nil {
			return openai.ChatCompletionToolUnionParam{}, p.refuse("the parameters of tool %s are no JSON object", spec.Name)
		}
	}
	return openai.ChatCompletionFunctionTool(fn), nil
}

// agentMessages returns what the model said, or nothing if it said nothing. Files that it made are left out: the API
// takes none in its own messages.
func agentMessages(m agentsvc.Message) []openai.ChatCompletionMessageParamUnion {
	var msg openai.ChatCompletionAssistantMessageParam
	if text := plain(m.Parts); text != "" {
		msg.Content.OfString = openai.String(text)
	}
	for _, call := range m.ToolCalls {
		msg.ToolCalls = append(msg.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: string(call.ID),
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: call.Name, Arguments: string(call.Arguments),
				},
			},
		})
	}
	if !msg.Content.OfString.Valid() && len(msg.ToolCalls) == 0 {
		return nil
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &msg}}
}

func (p *Provider) userMessage(m agentsvc.Message) (openai.ChatCompletionMessageParamUnion, error) {
	if !slices.ContainsFunc(m.Parts, func(p agentsvc.Part) bool { return p.File != nil }) {
		return openai.UserMessage(plain(m.Parts)), nil
	}
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, part := range m.Parts {
		if part.File == nil {
			parts = append(parts, openai.TextContentPart(plain([]agentsvc.Part{part})))
			continue
		}
		address, err := p.image(*part.File)
		if err != nil {
			return openai.ChatCompletionMessageParamUnion{}, err
		}
		parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: address}))
	}
	return openai.UserMessage(parts), nil
}

// image returns the address the model is to look at: f's own, or its bytes as a data URL (RFC 2397).
func (p *Provider) image(f agentsvc.File) (string, error) {
	if f.URI != "" {
		if u, err := url.Parse(f.URI); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return "", p.refuse("file %q: only http and https addresses can be sent to this model", f.Name)
		}
		if f.MediaType != "" && !strings.HasPrefix(f.MediaType, "image/") {
			return "", p.refuse("file %q is %s; this model takes images only", f.Name, f.MediaType)
		}
		return f.URI, nil
	}
	if !slices.Contains(images, f.MediaType) {
		return "", p.refuse("file %q is %q; this model takes %s", f.Name, f.MediaType, strings.Join(images, ", "))
	}
	if len(f.Bytes) > maxFile {
		return "", p.refuse("file %q is larger than the 20 MB this model takes", f.Name)
	}
	return "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(f.Bytes), nil
}

// plain returns the text of parts, data as JSON.
func plain(parts []agentsvc.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
		if p.Data != nil {
			// A value that came from JSON goes back to it.
			text, _ := json.Marshal(p.Data.Value)
			b.Write(text)
		}
	}
	return b.String()
}

func (p *Provider) refuse(format string, args ...any) error {
	return &llm.Error{Provider: p.opts.Name, Reason: fmt.Sprintf(format, args...)}
}
