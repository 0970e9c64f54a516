package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc/pattern"
)

// maxViolations bounds the number of violations in one error text.
const maxViolations = 8

// Schema is a compiled JSON Schema for values that a model writes. Validation is bounded, see schemaMeter. It is safe
// for concurrent use.
type Schema struct {
	*compiledSchema
}

// compiledSchema is what all users of one schema in an app share.
type compiledSchema struct {
	compiled *jsonschema.Schema
	meter    *schemaMeter
}

// NewSchema compiles a JSON Schema (draft 2020-12 unless its $schema says otherwise). A schema that refers to another
// document is an error, since nothing is loaded: a reference could read a file or call a server. The error continues
// "is" or "are". Validation uses the processors on behalf of app, see package processor.
func NewSchema(app string, text json.RawMessage) (Schema, error) {
	shared, err := schemaCache.getOrCompile(schemaKey{app, sha256.Sum256(text)}, func() (*compiledSchema, error) {
		return compileSchema(app, text)
	})
	return Schema{shared}, err
}

// compileSchema compiles the schema in text, see [NewSchema].
func compileSchema(app string, text json.RawMessage) (*compiledSchema, error) {
	if err := checkJSONCost(text); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("no JSON Schema object")
	}
	if pattern.MeasureSchema(doc).Parts > pattern.MaxSchemaParts {
		return nil, fmt.Errorf("too large: more than %d objects and booleans", pattern.MaxSchemaParts)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(disabledLoader{})
	meter := attachMeter(c, app)
	// here is the address of the schema itself, for references within it.
	const here = "stoa://schema"
	if err := c.AddResource(here, doc); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	compiled, err := c.Compile(here)
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	return &compiledSchema{compiled, meter}, nil
}

// ErrInvalidJSON reports that a text is not a JSON value.
var ErrInvalidJSON = errors.New("not valid JSON")

// ValidateJSON returns the JSON value of text, with numbers as [json.Number]. The error is [ErrInvalidJSON], or lists
// for the model which values do not fit the schema and why; the value is returned with the latter.
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

// Bounds of a JSON text that is compiled as a schema or validated.
const (
	// maxValues bounds values and member names, as in a request's body.
	maxValues = 100_000
	// maxNumberBytes bounds the length of a number.
	maxNumberBytes = 400
	// maxExponent bounds a number's decimal exponent. That of a float64 ends at 308.
	maxExponent = 400
)

// checkJSONCost returns an error for JSON that costs far more to decode or compare than its length suggests: more than
// [maxValues] values and names, each of which takes dozens of bytes of memory, or a number such as 1e999999, which the
// library would compute exactly, with a million digits. It returns nil for text that is not JSON; the decoder reports
// that.
func checkJSONCost(text json.RawMessage) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for values := 0; ; values++ {
		token, err := d.ReadToken()
		if err != nil {
			return nil
		}
		switch kind := token.Kind(); {
		case kind == ']' || kind == '}':
			values-- // its opening token was counted
		case values >= maxValues:
			return fmt.Errorf("more than %d values", maxValues)
		case kind == '0' && !isComputable(token.String()):
			return fmt.Errorf("the number %.40s is out of range", token.String())
		}
	}
}

// isComputable reports whether exact arithmetic with a JSON number takes a few microseconds at most.
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

// describeViolations returns a list of the violations with their locations (JSON Pointers).
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

// disabledLoader is a schema loader that refuses every document.
type disabledLoader struct{}

// Load implements [jsonschema.URLLoader].
func (disabledLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not loaded", url)
}
