package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxViolations bounds how much of what is wrong with a value a model is told at once.
const maxViolations = 8

// Schema is a JSON Schema that a model's words are held to.
type Schema struct {
	compiled *jsonschema.Schema
	meter    *schemaMeter
}

// NewSchema reads a JSON Schema (draft 2020-12 unless it names another). It loads nothing: a schema that refers to
// another document is an error.
func NewSchema(text json.RawMessage) (Schema, error) {
	if err := checkJSONCost(text); err != nil {
		return Schema{}, fmt.Errorf("no JSON Schema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return Schema{}, fmt.Errorf("no JSON: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return Schema{}, errors.New("no JSON Schema object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(disabledLoader{})
	meter := attachMeter(c)
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

// ErrInvalidJSON says that a text is no JSON value.
var ErrInvalidJSON = errors.New("not valid JSON")

// ValidateJSON returns the JSON value that text is, numbers as [json.Number]. It returns [ErrInvalidJSON] if it is none, and where
// it does not fit the schema an error that says in words for a model what is wrong where.
func (s Schema) ValidateJSON(ctx context.Context, text json.RawMessage) (any, error) {
	if err := checkJSONCost(text); err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidJSON, err)
	}
	var invalid *jsonschema.ValidationError
	switch err := s.meter.runWithWorkLimit(ctx, len(text), func() error { return s.compiled.Validate(value) }); {
	case errors.As(err, &invalid):
		return value, errors.New(describeViolations(invalid))
	default:
		return value, err
	}
}

// What a JSON text may hold that a schema is compiled from or applied to.
const (
	maxValues      = 100_000 // and names of members, as in a request's body
	maxNumberBytes = 400     // of a number as it is written
	maxExponent    = 400     // of ten; float64 ends at 308
)

// checkJSONCost returns an error for JSON that costs far more to decode or to compare than its length suggests: of more than
// [maxValues] values and names, each of which takes dozens of bytes in memory, or with a number such as 1e999999, which the library would
// compute with exactly, in a million digits. It returns nil for what is not JSON, which the decoder reports.
func checkJSONCost(text json.RawMessage) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for values := 0; ; values++ {
		token, err := d.ReadToken()
		if err != nil {
			return nil
		}
		switch kind := token.Kind(); {
		case kind == ']' || kind == '}':
			values-- // its beginning counted
		case values >= maxValues:
			return fmt.Errorf("more than %d values", maxValues)
		case kind == '0' && !isComputable(token.String()):
			return fmt.Errorf("the number %.40s is out of range", token.String())
		}
	}
}

// isComputable reports whether exact arithmetic with a JSON number takes no more than some microseconds.
func isComputable(number string) bool {
	if len(number) > maxNumberBytes {
		return false
	}
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return true
	}
	exponent, err := strconv.Atoi(number[i+1:])
	return err == nil && -maxExponent <= exponent && exponent <= maxExponent
}

// describeViolations says where which value is wrong.
func describeViolations(invalid *jsonschema.ValidationError) string {
	var list []string
	for _, unit := range invalid.BasicOutput().Errors {
		if unit.Error == nil {
			continue
		}
		if len(list) == maxViolations {
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

// disabledLoader is a schema loader that loads nothing.
type disabledLoader struct{}

func (disabledLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not loaded", url)
}
