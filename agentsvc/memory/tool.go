package memory

import (
	"context"
	"encoding/json"
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// ToolName is the name of the tool.
const ToolName = "recall"

// NewTool returns a tool that searches the memories of the turn's owner.
func (r *Recall) NewTool() tool.Tool { return recallTool{r} }

// recallTool is the recall tool. It runs as any other tool and takes no owner as an argument: a model cannot ask for
// another user's memories.
type recallTool struct{ *Recall }

// Spec implements [tool.Tool].
func (t recallTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{
		Name:        ToolName,
		Description: "Searches earlier conversations with this user, those that are not shown here included. Returns the messages as quoted data.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"query": {"type": "string", "minLength": 1, "description": "What to look for, in words that the messages probably contain."},
				"limit": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many findings to return at most; 5 if left out."}
			},
			"required": ["query"],
			"additionalProperties": false
		}`),
	}
}

// IsIdempotent implements [tool.Tool]: a search changes nothing.
func (t recallTool) IsIdempotent() bool { return true }

// errSearchUnavailable is what the model reads when the search fails. The cause is only logged.
var errSearchUnavailable = errors.New("the memory cannot be searched at present")

// Call implements [tool.Tool]. It searches with a lower threshold than the background does, since the model has asked.
// The result is quoted data, one line of JSON for each memory.
func (t recallTool) Call(ctx context.Context, in tool.Call) (string, error) {
	args := struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}{Limit: maxFindings}
	if err := json.Unmarshal(in.Arguments, &args); err != nil {
		return "", err
	}
	if !t.remembersSession(in.Session) {
		return "Nothing is remembered of this user.", nil
	}
	found, err := t.finder.FindMemories(ctx, in.RunScope, args.Query, args.Limit, false)
	if err != nil {
		t.options.Log.WarnContext(ctx, "the memory could not be searched", "error", err)
		return "", errSearchUnavailable
	}
	if found = t.filterMemories(ctx, found); len(found) == 0 {
		return "Nothing was found.", nil
	}
	return quoteMemories(found, 2000), nil
}
