package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxComplaints bounds how much of what is wrong with arguments a model is told at once.
const maxComplaints = 8

// arguments is what a tool's schema says about them.
type arguments struct {
	schema *jsonschema.Schema
}

// compile reads a JSON Schema (draft 2020-12 unless it names another). It loads nothing: a schema that refers to
// another document is an error.
func compile(parameters json.RawMessage) (arguments, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(parameters))
	if err != nil {
		return arguments{}, fmt.Errorf("are no JSON: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return arguments{}, errors.New("are no JSON Schema object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	const here = "stoa://tool/parameters"
	if err := c.AddResource(here, doc); err != nil {
		return arguments{}, fmt.Errorf("are no JSON Schema: %w", err)
	}
	schema, err := c.Compile(here)
	if err != nil {
		return arguments{}, fmt.Errorf("are no JSON Schema: %w", err)
	}
	return arguments{schema}, nil
}

// check reports in words for a model what is wrong with text as arguments.
func (a arguments) check(text json.RawMessage) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("are not valid JSON: %w", err)
	}
	if _, ok := value.(map[string]any); !ok {
		return errors.New("must be a JSON object")
	}
	var invalid *jsonschema.ValidationError
	switch err := a.schema.Validate(value); {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return fmt.Errorf("do not fit its schema: %s", complaints(invalid))
	default:
		return fmt.Errorf("do not fit its schema: %w", err)
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
