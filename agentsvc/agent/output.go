package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/tool"
)

// Output is the JSON format in which an agent answers. It is immutable and safe for concurrent use.
type Output struct {
	// format is what the model gets; schema is its schema compiled, for checking.
	format *llm.OutputFormat
	schema tool.Schema
}

// NewOutput returns an output that fits schema, a JSON Schema (draft 2020-12 unless its $schema says otherwise) without
// references to other documents. Name names the output for the model; it may be empty. With strict, an answer must be
// the JSON value and nothing else; without it, the value may be in a fenced block or surrounded by text. The checks use
// the processors on behalf of app, see package processor.
func NewOutput(app, name string, schema map[string]any, strict bool) (*Output, error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("the schema is no JSON: %w", err)
	}
	compiled, err := tool.NewSchema(app, text)
	if err != nil {
		return nil, fmt.Errorf("the schema is %w", err)
	}
	return &Output{&llm.OutputFormat{Name: name, Schema: schema, Strict: strict, Prompt: describeFormat(name, string(text))}, compiled}, nil
}

// describeFormat returns the paragraph of a system prompt that describes a format.
func describeFormat(name, schema string) string {
	what := "one JSON value"
	if name != "" {
		what = fmt.Sprintf("one JSON value, %q,", name)
	}
	return "Give your final answer as " + what + " that fits this JSON Schema, without any words around it:\n" + schema
}

// requestsFormat reports whether the format is part of the request, so that the vendor's own mode for it is used. That
// is so where the text of an answer is the only form of the final answer: where the agent may also answer by the exit
// tool, or goes on after a text, the mode would bind the wrong texts, and the system prompt describes the format.
func (o Options) requestsFormat() bool {
	return o.Output != nil && o.Reasoning.endsOn(NoToolCalls) && !o.Reasoning.Exit
}

// conformAnswer returns m with the JSON value as its only content, once as text and once as a data part. The error
// continues the sentence "The answer ..." and is shown to the model.
func (o *Output) conformAnswer(ctx context.Context, m agentsvc.Message) (agentsvc.Message, error) {
	text := strings.TrimSpace(m.Text())
	if !o.format.Strict {
		text = extractJSON(text)
	}
	_, err := o.schema.ValidateJSON(ctx, json.RawMessage(text))
	switch {
	case errors.Is(err, tool.ErrInvalidJSON):
		return m, fmt.Errorf("is %w", err)
	case err != nil:
		return m, fmt.Errorf("does not fit the schema: %w", err)
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return m, fmt.Errorf("is %w: %w", tool.ErrInvalidJSON, err)
	}
	m.Parts = []agentsvc.Part{agentsvc.TextPart(text), {Data: &agentsvc.Data{MediaType: jsonType, Value: value}}}
	return m, nil
}

// jsonType is the media type of the data part of an answer.
const jsonType = "application/json"

// extractJSON returns the JSON value within text: text itself if it is valid, else the content of its first fenced
// block, else everything from the first brace or bracket to the last one, else text. The result is not checked.
func extractJSON(text string) string {
	if json.Valid([]byte(text)) {
		return text
	}
	const fence = "```"
	if _, rest, ok := strings.Cut(text, fence); ok {
		if block, _, ok := strings.Cut(rest, fence); ok {
			_, block, _ = strings.Cut(block, "\n") // drop the language name after the fence
			return strings.TrimSpace(block)
		}
	}
	from, to := strings.IndexAny(text, "{["), strings.LastIndexAny(text, "}]")
	if from >= 0 && to > from {
		return text[from : to+1]
	}
	return text
}
