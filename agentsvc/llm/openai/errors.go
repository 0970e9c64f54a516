package openai

import (
	"encoding/json"
	"errors"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// codes tells what a code in an error's body means.
var codes = map[string]string{
	"context_length_exceeded": "the conversation is longer than the model can read",
	"insufficient_quota":      "the account's quota is used up",
	"model_not_found":         "the model is unknown there",
}

// explain adds to e what the code in an error's body says.
func explain(e *llm.Error, body []byte) {
	var in struct {
		Error struct {
			Code any    `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil {
		return // no code; the status says enough
	}
	code, _ := in.Error.Code.(string)
	if known := codes[code]; known != "" {
		e.Reason = known
	}
	if code == "insufficient_quota" || in.Error.Type == "insufficient_quota" {
		e.Retryable = false
	}
}

// inStream tells an error that the server reports in the middle of an answer from others.
func inStream(err error) error {
	var reported *ssestream.StreamError
	if errors.As(err, &reported) {
		return upstream.ErrReported
	}
	return err
}
