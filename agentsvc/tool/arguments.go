package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// arguments is what a tool's schema says about them.
type arguments struct {
	schema Schema
}

func compile(parameters json.RawMessage) (arguments, error) {
	schema, err := NewSchema(parameters)
	if err != nil {
		return arguments{}, fmt.Errorf("are %w", err)
	}
	return arguments{schema}, nil
}

// check reports in words for a model what is wrong with text as arguments.
func (a arguments) check(ctx context.Context, text json.RawMessage) error {
	value, err := a.schema.Check(ctx, text)
	if errors.Is(err, ErrJSON) {
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
