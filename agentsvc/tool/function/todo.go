package function

import (
	"context"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// todoTool is the built-in todo, a list of open work for the model. It stores nothing: each call contains the whole
// list, and the list is in the conversation. A restored task therefore has the list of that time.
type todoTool struct {
	spec agentsvc.ToolSpec
}

// newTodo builds todo.
func newTodo(opts Options) (tool.Tool, error) {
	return todoTool{opts.toolSpec("Notes the plan of a larger task. Call it with the whole list whenever an item begins, ends or is added; it returns the list as it now is.", `{
		"type": "object",
		"properties": {
			"items": {
				"type": "array",
				"maxItems": 100,
				"items": {
					"type": "object",
					"properties": {
						"text": {"type": "string", "minLength": 1, "maxLength": 500},
						"state": {"type": "string", "enum": ["open", "doing", "done"], "description": "open if left out"}
					},
					"required": ["text"],
					"additionalProperties": false
				}
			}
		},
		"required": ["items"],
		"additionalProperties": false
	}`)}, nil
}

// Spec implements [tool.Tool].
func (t todoTool) Spec() agentsvc.ToolSpec { return t.spec }

// IsIdempotent implements [tool.Tool]: the tool stores nothing.
func (t todoTool) IsIdempotent() bool { return true }

// stateMarks are the marks shown for the states of an item.
var stateMarks = map[string]string{"": "[ ]", "open": "[ ]", "doing": "[>]", "done": "[x]"}

// Call returns the list as text.
func (t todoTool) Call(_ context.Context, in tool.Call) (string, error) {
	var args struct {
		Items []struct {
			Text  string `json:"text"`
			State string `json:"state"`
		} `json:"items"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	// An empty list is how the model clears its plan.
	if len(args.Items) == 0 {
		return "The list is empty.", nil
	}
	var b strings.Builder
	done := 0
	for i, item := range args.Items {
		// The schema may be the tenant's own, so the state is checked again.
		mark, ok := stateMarks[item.State]
		if !ok {
			return "", agentsvc.NewInvalidError("items", "the state %q is none of open, doing, done", item.State)
		}
		if item.State == "done" {
			done++
		}
		fmt.Fprintf(&b, "%d. %s %s\n", i+1, mark, item.Text)
	}
	fmt.Fprintf(&b, "%d of %d done.", done, len(args.Items))
	return b.String(), nil
}
