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

// NewToolRunner returns an agent that runs the tools of a set in their order and answers with what the last one said. What
// it thinks with is a [NewPipeline]. The first tool gets the message's data part as its arguments, each other one what the
// tool before it said; text that is no JSON object becomes the one argument that the tool needs, or "input" where that
// is not clear.
func NewToolRunner(pipeline llm.Provider, tools *tool.Set, complete bool) *LLM {
	return NewLLM(pipeline, Options{Tools: tools, CompleteOnly: complete, Reasoning: Reasoning{MaxSteps: maxPipelineTools}})
}

// maxPipelineTools bounds the tools of a runner.
const maxPipelineTools = 1000

// NewPipeline returns what a runner thinks with: it calls one tool after the other.
func NewPipeline() llm.Provider { return pipeline{} }

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

// readProgress returns how many tools have run since the user's message, and what the next one is given.
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

// readFirstInput is what a message gives the first tool: its data part as JSON, else its text.
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

// newArguments makes the arguments of a tool of text.
func newArguments(spec agentsvc.ToolSpec, text string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) == nil && object != nil {
		return json.RawMessage(text)
	}
	raw, _ := json.Marshal(map[string]string{findOnlyArgument(spec): text})
	return raw
}

// findOnlyArgument names the one argument that a tool needs, or else the one it has.
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
