package ollama

import (
	"encoding/json"

	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// answer puts the lines of one answer together.
type answer struct {
	*upstream.Answer
	done   bool
	reason string
}

// line takes in the next line, which is whole or the rest of a body that broke off.
func (a *answer) line(text []byte, whole bool) ([]llm.Chunk, error) {
	var ev chatResponse
	switch err := json.Unmarshal(text, &ev); {
	case err == nil:
		return a.add(ev)
	case whole:
		return nil, upstream.ErrMalformed
	}
	return nil, upstream.ErrBrokeOff
}

// add takes in the next line and returns what can be shown at once: text.
func (a *answer) add(ev chatResponse) ([]llm.Chunk, error) {
	if ev.Error != "" {
		return nil, upstream.ErrReported
	}
	for _, c := range ev.Message.ToolCalls {
		call, err := a.Call(c.ID, c.Function.Name)
		if err != nil {
			return nil, err
		}
		if !isObject(c.Function.Arguments) {
			return nil, upstream.ErrMalformed
		}
		if err := a.Arguments(call, string(c.Function.Arguments)); err != nil {
			return nil, err
		}
	}
	if ev.Done {
		a.done, a.reason = true, ev.DoneReason
		a.Count(ev.PromptEvalCount, ev.EvalCount, 0, 0, 0)
	}
	return a.Text(ev.Message.Content)
}

// end returns the last chunks of an answer that came to its end.
func (a *answer) end() ([]llm.Chunk, error) {
	switch {
	case !a.done:
		return nil, upstream.ErrBrokeOff
	case a.reason == "length":
		return a.End(llm.StopLength)
	}
	return a.End(llm.StopEnd)
}
