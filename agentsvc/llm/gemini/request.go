package gemini

import (
	"encoding/base64"
	"math"
	"strings"

	"google.golang.org/genai"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// vendorName seals the thoughts of this vendor, see upstream.SealThought.
const vendorName = "gemini"

// hasOutputMode reports whether the request's format is sent as such; otherwise the system prompt describes it. The API
// refuses a format together with functions, and models other than Gemini, e.g. Gemma, have no such mode.
func (p *Provider) hasOutputMode(req llm.Request) bool {
	return req.Output != nil && len(req.Tools) == 0 && strings.Contains(p.opts.Model, "gemini-")
}

// encodeRequest returns the API's parameters for req. Consecutive entries of one role become one content. An error is
// an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeRequest(req llm.Request) ([]*genai.Content, *genai.GenerateContentConfig, error) {
	config := &genai.GenerateContentConfig{AutomaticContinuation: genai.Ptr(false)}
	// Checked before anything is built, so that the error names the file.
	if err := llm.FileSupportOf("gemini").CheckFiles(req.Conversation); err != nil {
		return nil, nil, err
	}
	if p.opts.Temperature != nil {
		config.Temperature = genai.Ptr(float32(*p.opts.Temperature))
	}
	// Zero is left out: no limit.
	config.MaxOutputTokens = int32(min(req.TokenLimit(p.opts.MaxTokens), math.MaxInt32))
	system := req.SystemText()
	if p.hasOutputMode(req) {
		system = req.System
		config.ResponseMIMEType, config.ResponseJsonSchema = "application/json", req.Output.Schema
	}
	if system != "" {
		config.SystemInstruction = &genai.Content{Parts: []*genai.Part{{Text: system}}}
	}
	// All functions are declarations of one tool.
	if len(req.Tools) > 0 {
		tool := &genai.Tool{}
		for _, spec := range req.Tools {
			schema, err := upstream.ParameterSchema(spec)
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
		role, parts := encodeParts(e)
		if len(parts) == 0 {
			continue
		}
		// Several tool results are consecutive entries of the user's role.
		if last := len(contents) - 1; last >= 0 && contents[last].Role == role {
			contents[last].Parts = append(contents[last].Parts, parts...)
			continue
		}
		contents = append(contents, &genai.Content{Role: role, Parts: parts})
	}
	return contents, config, nil
}

// encodeParts returns the role and the parts of an entry. A tool result is a function response in the user's role.
// Files that the model made are left out.
func encodeParts(e agentsvc.Entry) (string, []*genai.Part) {
	if r := e.Result; r != nil {
		// The keys are those of the API's documentation for function responses.
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
		if text := upstream.PartsText(part); text != "" {
			out = append(out, &genai.Part{Text: text})
		}
		if part.File != nil && !agent {
			out = append(out, encodeFilePart(*part.File))
		}
	}
	if !agent {
		return genai.RoleUser, out
	}
	for _, call := range e.Message.ToolCalls {
		p := &genai.Part{FunctionCall: &genai.FunctionCall{ID: string(call.ID), Name: call.Name, Args: upstream.CallArguments(call)}}
		if text, ok := upstream.UnsealThought(vendorName, call); ok {
			// A signature that is not base64 is not this vendor's; the call is then sent without one.
			p.ThoughtSignature, _ = base64.StdEncoding.DecodeString(text)
		}
		out = append(out, p)
	}
	return genai.RoleModel, out
}

// encodeFilePart returns a file as an address, which the vendor fetches, or by value.
func encodeFilePart(f agentsvc.File) *genai.Part {
	media := llm.NormalizeMediaType(f.MediaType)
	if f.URI != "" {
		return &genai.Part{FileData: &genai.FileData{FileURI: f.URI, MIMEType: media}}
	}
	return &genai.Part{InlineData: &genai.Blob{Data: f.Bytes, MIMEType: media}}
}
