package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxComplaints bounds how much of what is wrong with a value a model is told at once.
const maxComplaints = 8

// Schema is a JSON Schema that a model's words are held to.
type Schema struct {
	compiled *jsonschema.Schema
	meter    *schemaMeter
}

// NewSchema reads a JSON Schema (draft 2020-12 unless it names another). It loads nothing: a schema that refers to
// another document is an error.
func NewSchema(text json.RawMessage) (Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return Schema{}, fmt.Errorf("no JSON: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return Schema{}, errors.New("no JSON Schema object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	meter := meterOf(c)
	const here = "stoa://schema"
	if err := c.AddResource(here, doc); err != nil {
		return Schema{}, fmt.Errorf("no JSON Schema: %w", err)
	}
	compiled, err := c.Compile(here)
	if err != nil {
		return Schema{}, fmt.Errorf("no JSON Schema: %w", err)
	}
	return Schema{compiled, meter}, nil
}

// ErrJSON says that a text is no JSON value.
var ErrJSON = errors.New("not valid JSON")

// Check returns the JSON value that text is, numbers as [json.Number]. It returns [ErrJSON] if it is none, and where
// it does not fit the schema an error that says in words for a model what is wrong where.
func (s Schema) Check(ctx context.Context, text json.RawMessage) (any, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	var invalid *jsonschema.ValidationError
	switch err := s.meter.bounded(ctx, len(text), func() error { return s.compiled.Validate(value) }); {
	case errors.As(err, &invalid):
		return value, errors.New(complaints(invalid))
	default:
		return value, err
	}
}

// complaints says where which value is wrong.
func complaints(invalid *jsonschema.ValidationError) string {
	var list []string
	for _, unit := range invalid.BasicOutput().Errors {
		if unit.Error == nil {
			continue
		}
		if len(list) == maxComplaints {
			list = append(list, "and more")
			break
		}
		where := unit.InstanceLocation
		if where == "" {
			where = "/"
		}
		list = append(list, fmt.Sprintf("at %s: %s", where, unit.Error))
	}
	return strings.Join(list, "; ")
}

// closed is a schema loader that loads nothing.
type closed struct{}

func (closed) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not loaded", url)
}
