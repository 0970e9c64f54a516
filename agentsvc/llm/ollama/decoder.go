package ollama

import (
	"encoding/json"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answerDecoder assembles the lines of one answer.
type answerDecoder struct {
	*upstream.AnswerBuilder
	// provider is the provider's name in errors.
	provider string
	// done reports that the last line was read; doneReason is its reason.
	done       bool
	doneReason string
}

// decodeLine processes the next line. complete is false for the rest of a body without a newline: if that is not JSON,
// the answer broke off, while a complete line that is not JSON is malformed.
func (a *answerDecoder) decodeLine(text []byte, complete bool) ([]llm.Chunk, error) {
	var ev chatResponse
	switch err := json.Unmarshal(text, &ev); {
	case err == nil:
		return a.addResponse(ev)
	case complete:
		return nil, upstream.ErrMalformed
	}
	return nil, upstream.ErrBrokeOff
}

// addResponse processes the next object and returns the chunks that can be shown at once, i.e. text. A tool call is
// always complete in one object.
func (a *answerDecoder) addResponse(ev chatResponse) ([]llm.Chunk, error) {
	// An error in the middle of an answer: the status was sent long before.
	if formatRefusal.MatchString(ev.Error) {
		return nil, &llm.Error{Provider: a.provider, Reason: llm.ReasonFormatRefused}
	}
	if ev.Error != "" {
		return nil, upstream.ErrReported
	}
	// Each call is complete: its arguments are appended in one piece.
	for _, c := range ev.Message.ToolCalls {
		call, err := a.StartCall(c.ID, c.Function.Name)
		if err != nil {
			return nil, err
		}
		// The server sends arguments as an object, not as text that contains JSON.
		if !isObject(c.Function.Arguments) {
			return nil, upstream.ErrMalformed
		}
		if err := a.AppendArguments(call, string(c.Function.Arguments)); err != nil {
			return nil, err
		}
	}
	// The last line has the token counts. The server does not report its prompt cache.
	if ev.Done {
		a.done, a.doneReason = true, ev.DoneReason
		a.SetUsage(ev.PromptEvalCount, ev.EvalCount, 0, 0, 0)
	}
	return a.AddText(ev.Message.Content)
}

// finishAnswer returns the last chunks of an answer.
func (a *answerDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch {
	// The body ended before the last line.
	case !a.done:
		return nil, upstream.ErrBrokeOff
	case a.doneReason == "length":
		return a.Finish(llm.StopLength)
	}
	return a.Finish(llm.StopEnd)
}
