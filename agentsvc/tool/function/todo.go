package function

import (
	"context"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// todoTool gives a model a list of what is to be done. It keeps nothing: the list is in the conversation, and each call
// brings the whole of it.
type todoTool struct {
	spec agentsvc.ToolSpec
}

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

func (t todoTool) Spec() agentsvc.ToolSpec { return t.spec }
func (t todoTool) IsIdempotent() bool      { return true }

// stateMarks are the states of an item as they are shown.
var stateMarks = map[string]string{"": "[ ]", "open": "[ ]", "doing": "[>]", "done": "[x]"}

func (t todoTool) Call(_ context.Context, in tool.Input) (string, error) {
	var args struct {
		Items []struct {
			Text  string `json:"text"`
			State string `json:"state"`
		} `json:"items"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	if len(args.Items) == 0 {
		return "The list is empty.", nil
	}
	var b strings.Builder
	done := 0
	for i, item := range args.Items {
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
