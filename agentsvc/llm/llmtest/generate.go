package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc/llm"
)

// generateDialect is Gemini's generateContent API, streamed.
var generateDialect = dialect{
	apiKey:      func(r *http.Request) string { return r.Header.Get("X-Goog-Api-Key") },
	readRequest: readGenerate, writeReply: writeGenerateReply,
	writeError: jsonErrorWriter(func(status int, message string) any {
		return object{"error": object{"code": status, "message": message, "status": "ERROR"}}
	}),
}

// generateContent is a message of a request.
type generateContent struct {
	Role  string         `json:"role"`
	Parts []generatePart `json:"parts"`
}

// generatePart is a part of a message; one of its fields is set.
type generatePart struct {
	Text             string `json:"text"`
	ThoughtSignature string `json:"thoughtSignature"`
	InlineData       *struct {
		Data     string `json:"data"`
		MIMEType string `json:"mimeType"`
	} `json:"inlineData"`
	FileData *struct {
		FileURI  string `json:"fileUri"`
		MIMEType string `json:"mimeType"`
	} `json:"fileData"`
	FunctionCall *struct {
		ID   string         `json:"id"`
		Name string         `json:"name"`
		Args map[string]any `json:"args"`
	} `json:"functionCall"`
	FunctionResponse *struct {
		ID       string         `json:"id"`
		Name     string         `json:"name"`
		Response map[string]any `json:"response"`
	} `json:"functionResponse"`
}

// readGenerate is the readRequest function of the dialect. It requires alternating roles and results in the order of
// the calls.
func readGenerate(r *http.Request, body []byte) (parsedRequest, error) {
	model, verb, _ := strings.Cut(r.PathValue("call"), ":")
	if verb != "streamGenerateContent" || r.URL.Query().Get("alt") != "sse" {
		return parsedRequest{}, errors.New("only streams of events are served")
	}
	var req struct {
		Contents []generateContent `json:"contents"`
		Tools    []struct {
			FunctionDeclarations []struct {
				Name                 string         `json:"name"`
				ParametersJSONSchema map[string]any `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return parsedRequest{}, err
	}
	for _, t := range req.Tools {
		for _, f := range t.FunctionDeclarations {
			if f.Name == "" || f.ParametersJSONSchema["type"] != "object" {
				return parsedRequest{}, errors.New("a tool is malformed")
			}
		}
	}
	a := parsedRequest{model: model, includeUsage: true}
	var pendingCalls []string // names of the calls without a result yet, in order
	for i, c := range req.Contents {
		if want := []string{"user", "model"}[i%2]; c.Role != want || len(c.Parts) == 0 {
			return parsedRequest{}, fmt.Errorf("contents[%d]: want parts of role %s", i, want)
		}
		a.text, a.tool = "", ""
		answered := 0
		var called []string
		for j, p := range c.Parts {
			var err error
			switch {
			case p.FunctionCall != nil:
				if p.FunctionCall.Name == "" {
					err = errors.New("function_call.name is empty")
				}
				if first := len(called) == 0; first && p.ThoughtSignature == "" {
					err = errors.New("function call is missing a thought_signature")
				}
				called = append(called, p.FunctionCall.Name)
			case p.FunctionResponse != nil:
				a.tool = p.FunctionResponse.Name
				a.text, _ = p.FunctionResponse.Response["output"].(string)
				answered++
			case p.InlineData != nil:
				if raw, bad := base64.StdEncoding.DecodeString(p.InlineData.Data); bad != nil || len(raw) == 0 || p.InlineData.MIMEType == "" {
					err = errors.New("malformed inline data")
				}
			case p.FileData != nil:
				if p.FileData.FileURI == "" || p.FileData.MIMEType == "" {
					err = errors.New("malformed file data")
				}
			case p.Text == "":
				err = errors.New("required oneof field 'data' must have one initialized field")
			case a.tool != "":
				a.text, a.tool = p.Text, ""
			default:
				a.text += p.Text
			}
			if err != nil {
				return parsedRequest{}, fmt.Errorf("contents[%d].parts[%d]: %w", i, j, err)
			}
		}
		if answered != len(pendingCalls) {
			return parsedRequest{}, fmt.Errorf("contents[%d]: as many function responses as function calls are needed", i)
		}
		pendingCalls = called
	}
	return a, nil
}

// writeGenerateReply is the writeReply function of the dialect.
func writeGenerateReply(w http.ResponseWriter, r *http.Request, reply Reply, a parsedRequest) {
	s := newSSEWriter(w)
	send := func(finish string, parts ...object) {
		candidate := object{"index": 0, "content": object{"role": "model", "parts": parts}}
		event := object{"candidates": []object{candidate}, "modelVersion": a.model, "responseId": "1"}
		if finish != "" {
			u := reply.Usage
			candidate["finishReason"] = finish
			event["usageMetadata"] = object{
				"promptTokenCount": u.InputTokens, "candidatesTokenCount": u.OutputTokens - u.ReasoningTokens,
				"cachedContentTokenCount": u.CacheReadTokens, "thoughtsTokenCount": u.ReasoningTokens,
				"totalTokenCount": u.InputTokens + u.OutputTokens,
			}
		}
		s.writeJSON(event)
	}
	if reply.Thought != "" {
		send("", object{"text": reply.Thought, "thought": true})
	}
	for _, piece := range reply.Pieces {
		send("", object{"text": fillResult(piece, a.text)})
	}
	if reply.Hang {
		<-r.Context().Done()
		return
	}
	for i, call := range reply.Calls {
		fn := object{"name": call.Name, "args": json.RawMessage(call.Arguments)}
		if call.ID != "" {
			fn["id"] = call.ID
		}
		part := object{"functionCall": fn}
		if i == 0 {
			part["thoughtSignature"] = thoughtSignature
		}
		send("", part)
	}
	switch reply.Stop {
	case llm.StopLength:
		send("MAX_TOKENS", object{"text": ""})
	case llm.StopRefusal:
		send("SAFETY", object{"text": ""})
	default:
		send("STOP", object{"text": ""})
	}
}
