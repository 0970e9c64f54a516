package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// argumentSchema is the compiled schema of a tool's arguments.
type argumentSchema struct {
	schema Schema
}

// compileArguments compiles the schema of a tool's parameters.
func compileArguments(app string, parameters json.RawMessage) (argumentSchema, error) {
	schema, err := NewSchema(app, parameters)
	if err != nil {
		return argumentSchema{}, fmt.Errorf("are %w", err)
	}
	return argumentSchema{schema}, nil
}

// checkArguments returns an error, written for the model, if text is not an object that fits the schema. The text
// continues a sentence that begins with "The arguments".
func (a argumentSchema) checkArguments(ctx context.Context, text json.RawMessage) error {
	value, err := a.schema.ValidateJSON(ctx, text)
	if errors.Is(err, ErrInvalidJSON) {
		return fmt.Errorf("are %w", err)
	}
	if _, ok := value.(map[string]any); !ok {
		return errors.New("must be a JSON object")
	}
	if err != nil {
		return fmt.Errorf("do not fit its schema: %w", err)
	}
	return nil
}
