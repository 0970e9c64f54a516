package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// Output is the JSON that an agent answers in.
type Output struct {
	name       string
	strict     bool
	schemaText string // of the schema
	schema     tool.Schema
}

// NewOutput returns an output that fits schema, a JSON Schema (draft 2020-12 unless it names another) that refers to
// no other document. Name names it for the model, "" = no name. With strict an answer is the JSON value and nothing
// else; without it the value may stand in a fenced block or among other words.
func NewOutput(name string, schema map[string]any, strict bool) (*Output, error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("the schema is no JSON: %w", err)
	}
	compiled, err := tool.NewSchema(text)
	if err != nil {
		return nil, fmt.Errorf("the schema is %w", err)
	}
	return &Output{name, strict, string(text), compiled}, nil
}

// describeFormat tells a model how to answer.
func (o *Output) describeFormat() string {
	what := "one JSON value"
	if o.name != "" {
		what = fmt.Sprintf("one JSON value, %q,", o.name)
	}
	return "Give your final answer as " + what + " that fits this JSON Schema, without any words around it:\n" + o.schemaText
}

// conformAnswer makes m, an answer, hold the JSON value alone, as text and as data, or says what is wrong with it.
func (o *Output) conformAnswer(ctx context.Context, m agentsvc.Message) (agentsvc.Message, error) {
	text := strings.TrimSpace(m.Text())
	if !o.strict {
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

const jsonType = "application/json"

// extractJSON returns the JSON value that text holds: in its first fenced block, else from its first brace or bracket to
// the last, else all of it.
func extractJSON(text string) string {
	if json.Valid([]byte(text)) {
		return text
	}
	const fence = "```"
	if _, rest, ok := strings.Cut(text, fence); ok {
		if block, _, ok := strings.Cut(rest, fence); ok {
			_, block, _ = strings.Cut(block, "\n") // behind the name of its language
			return strings.TrimSpace(block)
		}
	}
	from, to := strings.IndexAny(text, "{["), strings.LastIndexAny(text, "}]")
	if from >= 0 && to > from {
		return text[from : to+1]
	}
	return text
}
