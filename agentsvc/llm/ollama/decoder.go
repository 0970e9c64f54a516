package ollama

import (
	"encoding/json"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answerDecoder puts the lines of one answer together.
type answerDecoder struct {
	*upstream.AnswerBuilder
	done       bool
	doneReason string
}

// decodeLine takes in the next line, which is whole or the rest of a body that broke off.
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

// addResponse takes in the next line and returns what can be shown at once: text.
func (a *answerDecoder) addResponse(ev chatResponse) ([]llm.Chunk, error) {
	if ev.Error != "" {
		return nil, upstream.ErrReported
	}
	for _, c := range ev.Message.ToolCalls {
		call, err := a.StartCall(c.ID, c.Function.Name)
		if err != nil {
			return nil, err
		}
		if !isObject(c.Function.Arguments) {
			return nil, upstream.ErrMalformed
		}
		if err := a.AppendArguments(call, string(c.Function.Arguments)); err != nil {
			return nil, err
		}
	}
	if ev.Done {
		a.done, a.doneReason = true, ev.DoneReason
		a.SetUsage(ev.PromptEvalCount, ev.EvalCount, 0, 0, 0)
	}
	return a.AddText(ev.Message.Content)
}

// finishAnswer returns the last chunks of an answer that came to its end.
func (a *answerDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch {
	case !a.done:
		return nil, upstream.ErrBrokeOff
	case a.doneReason == "length":
		return a.Finish(llm.StopLength)
	}
	return a.Finish(llm.StopEnd)
}
