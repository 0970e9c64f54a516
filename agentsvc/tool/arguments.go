package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// argumentSchema is what a tool's schema says about them.
type argumentSchema struct {
	schema Schema
}

func compileArguments(parameters json.RawMessage) (argumentSchema, error) {
	schema, err := NewSchema(parameters)
	if err != nil {
		return argumentSchema{}, fmt.Errorf("are %w", err)
	}
	return argumentSchema{schema}, nil
}

// checkArguments reports in words for a model what is wrong with text as arguments.
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
