package gemini

import (
	"encoding/base64"
	"math"

	"google.golang.org/genai"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// vendor marks the thoughts of this vendor's models.
const vendor = "gemini"

// params puts req into the API's words. An error is an [agentsvc.InvalidError].
func (p *Provider) params(req llm.Request) ([]*genai.Content, *genai.GenerateContentConfig, error) {
	config := &genai.GenerateContentConfig{AutomaticContinuation: genai.Ptr(false)}
	if err := llm.FilesOf("gemini").Check(req.Conversation); err != nil {
		return nil, nil, err
	}
	if p.opts.Temperature != nil {
		config.Temperature = genai.Ptr(float32(*p.opts.Temperature))
	}
	config.MaxOutputTokens = int32(min(req.Most(p.opts.MaxTokens), math.MaxInt32))
	if req.System != "" {
		config.SystemInstruction = &genai.Content{Parts: []*genai.Part{{Text: req.System}}}
	}
	if len(req.Tools) > 0 {
		tool := &genai.Tool{}
		for _, spec := range req.Tools {
			schema, err := upstream.Parameters(spec)
			if err != nil {
				return nil, nil, err
			}
			tool.FunctionDeclarations = append(tool.FunctionDeclarations, &genai.FunctionDeclaration{
				Name: spec.Name, Description: spec.Description, ParametersJsonSchema: schema,
			})
		}
		config.Tools = []*genai.Tool{tool}
	}
	var contents []*genai.Content
	for _, e := range req.Conversation {
		role, parts := parts(e)
		if len(parts) == 0 {
			continue
		}
		if last := len(contents) - 1; last >= 0 && contents[last].Role == role {
			contents[last].Parts = append(contents[last].Parts, parts...)
			continue
		}
		contents = append(contents, &genai.Content{Role: role, Parts: parts})
	}
	return contents, config, nil
}

// parts returns what an entry is to the API: who speaks, and what. Files that the model made are left out.
func parts(e agentsvc.Entry) (string, []*genai.Part) {
	if r := e.Result; r != nil {
		key := "output"
		if r.Failed {
			key = "error"
		}
		return genai.RoleUser, []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
			ID: string(r.Call), Name: r.Name, Response: map[string]any{key: r.Text},
		}}}
	}
	if e.Message == nil {
		return "", nil
	}
	agent := e.Message.Role == agentsvc.RoleAgent
	var out []*genai.Part
	for _, part := range e.Message.Parts {
		if text := upstream.Text(part); text != "" {
			out = append(out, &genai.Part{Text: text})
		}
		if part.File != nil && !agent {
			out = append(out, filePart(*part.File))
		}
	}
	if !agent {
		return genai.RoleUser, out
	}
	for _, call := range e.Message.ToolCalls {
		p := &genai.Part{FunctionCall: &genai.FunctionCall{ID: string(call.ID), Name: call.Name, Args: upstream.Arguments(call)}}
		if text, ok := upstream.Unseal(vendor, call); ok {
			// A signature that is not base64 is nobody's.
			p.ThoughtSignature, _ = base64.StdEncoding.DecodeString(text)
		}
		out = append(out, p)
	}
	return genai.RoleModel, out
}

func filePart(f agentsvc.File) *genai.Part {
	media := llm.MediaType(f.MediaType)
	if f.URI != "" {
		return &genai.Part{FileData: &genai.FileData{FileURI: f.URI, MIMEType: media}}
	}
	return &genai.Part{InlineData: &genai.Blob{Data: f.Bytes, MIMEType: media}}
}
