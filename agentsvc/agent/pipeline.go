package agent

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/tool"
)

// NewToolRunner returns an agent that runs the tools of a set in order and answers with the text of the last result.
// Its model is a pipeline, see [NewPipeline], which the caller may decorate like any other provider. The first tool
// receives the message's data part as its arguments, each later one the previous tool's result. Text that is not a JSON
// object becomes the value of the only required argument of the tool, or of "input" where that is ambiguous.
func NewToolRunner(pipeline llm.Provider, tools *tool.Set, complete bool) *LLM {
	return NewLLM(pipeline, Options{Tools: tools, CompleteOnly: complete, Reasoning: Reasoning{MaxSteps: maxPipelineTools}})
}

// maxPipelineTools bounds the model calls of a tool runner's turn, one for each tool and one for the answer.
const maxPipelineTools = 1000

// NewPipeline returns a provider that makes no model call: its answer calls the first tool of the request that has no
// result yet, or, after the last one, repeats the last result. It has no state, so that a turn resumes after a crash
// like that of any other model.
func NewPipeline() llm.Provider { return pipeline{} }

// pipeline implements [llm.Provider] for tool runners.
type pipeline struct{}

// Stream implements [llm.Provider].
func (pipeline) Stream(_ context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		text, done, err := readProgress(req.Conversation)
		switch {
		case err != nil:
			yield(llm.Chunk{}, err)
		case done < len(req.Tools):
			spec := req.Tools[done]
			call := agentsvc.ToolCall{ID: agentsvc.CallID("call_" + agentsvc.NewID()), Name: spec.Name, Arguments: newArguments(spec, text)}
			_ = yield(llm.Chunk{ToolCall: &call}, nil) && yield(llm.Chunk{Stop: llm.StopTools}, nil)
		default:
			_ = yield(llm.Chunk{Text: text}, nil) && yield(llm.Chunk{Stop: llm.StopEnd}, nil)
		}
	}
}

// readProgress returns how many results follow the last user message, and the input of the next tool: the last result,
// or the user's message before the first one. A failed result is returned as an error, which ends the turn.
func readProgress(conversation []agentsvc.Entry) (text string, done int, err error) {
	for _, e := range slices.Backward(conversation) {
		switch {
		case e.Result != nil && e.Result.Failed:
			return "", 0, agentsvc.NewInvalidError("", "%s", e.Result.Text)
		case e.Result != nil:
			if done++; done == 1 {
				text = e.Result.Text
			}
		case e.Message.Role == agentsvc.RoleUser:
			if done == 0 {
				text = readFirstInput(*e.Message)
			}
			return text, done, nil
		}
	}
	return text, done, nil
}

// readFirstInput returns the input of the first tool: the message's first data part as JSON, else its text.
func readFirstInput(m agentsvc.Message) string {
	for _, p := range m.Parts {
		if p.Data == nil {
			continue
		}
		if raw, err := json.Marshal(p.Data.Value); err == nil {
			return string(raw)
		}
	}
	m.Parts = withoutTitle(m)
	return m.Text()
}

// newArguments returns the arguments of a tool: text itself if it is a JSON object, else an object with text as its one
// value.
func newArguments(spec agentsvc.ToolSpec, text string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) == nil && object != nil {
		return json.RawMessage(text)
	}
	raw, _ := json.Marshal(map[string]string{findOnlyArgument(spec): text})
	return raw
}

// findOnlyArgument returns the name of the one required property of the tool's schema, or of its only property if none
// is required, or "input".
func findOnlyArgument(spec agentsvc.ToolSpec) string {
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	_ = json.Unmarshal(spec.Parameters, &schema)
	if len(schema.Required) == 1 {
		return schema.Required[0]
	}
	if len(schema.Required) == 0 && len(schema.Properties) == 1 {
		for name := range schema.Properties {
			return name
		}
	}
	return "input"
}
