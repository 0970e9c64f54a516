package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// codeReasons are texts for callers by the code in an error's body.
var codeReasons = map[string]string{
	"context_length_exceeded": "the conversation is longer than the model can read",
	"insufficient_quota":      "the account's quota is used up",
	"model_not_found":         "the model is unknown there",
}

// paramReasons are texts for callers by the parameter that the server refused, with what to change in the
// configuration.
var paramReasons = map[string]string{
	"temperature":      "it takes no such temperature: leave temperature out",
	"max_tokens":       "it takes no such max_tokens: leave max_tokens out, or set api: responses",
	"reasoning_effort": "it takes tools in another protocol only: set api: responses",
}

// refineError refines e by the code and the parameter in the body.
func refineError(e *llm.Error, body []byte) {
	var in struct {
		Error struct {
			Code    any    `json:"code"`
			Type    string `json:"type"`
			Param   string `json:"param"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil {
		return // the status is enough
	}
	// Compatible servers send numbers or null as the code.
	code, _ := in.Error.Code.(string)
	if known := codeReasons[code]; known != "" {
		e.Reason = known
	}
	if known := paramReasons[in.Error.Param]; known != "" && e.Status == http.StatusBadRequest {
		e.Reason = known
	}
	// Some errors about the format name the parameter in their text only.
	format := strings.HasPrefix(in.Error.Param, "text.format") || strings.Contains(in.Error.Param+in.Error.Message, "response_format")
	if format && e.Status == http.StatusBadRequest {
		e.Reason = llm.ReasonFormatRefused + ", or leave strict out"
	}
	// It comes with status 429, but waiting does not help.
	if code == "insufficient_quota" || in.Error.Type == "insufficient_quota" {
		e.Retryable = false
	}
}

// translateStreamError returns upstream.ErrReported for an error that the server reports within an answer, whose text
// must not be shown, and err otherwise.
func translateStreamError(err error) error {
	var reported *ssestream.StreamError
	if errors.As(err, &reported) {
		return upstream.ErrReported
	}
	return err
}
