package memory

import (
	"context"
	"encoding/json"
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// ToolName is what a model calls the tool by.
const ToolName = "recall"

// NewTool returns a tool that searches the memories of whoever the turn belongs to.
func (r *Recall) NewTool() tool.Tool { return recallTool{r} }

type recallTool struct{ *Recall }

func (t recallTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{
		Name:        ToolName,
		Description: "Searches earlier conversations with this user, those that are not shown here included. Returns what was said, as quoted data.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"query": {"type": "string", "minLength": 1, "description": "What to look for, in the words it was probably said in."},
				"limit": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many findings to return at most; 5 if left out."}
			},
			"required": ["query"],
			"additionalProperties": false
		}`),
	}
}

func (t recallTool) IsIdempotent() bool { return true }

var errSearchUnavailable = errors.New("the memory cannot be searched at present")

func (t recallTool) Call(ctx context.Context, in tool.Input) (string, error) {
	args := struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}{Limit: maxFindings}
	if err := json.Unmarshal(in.Arguments, &args); err != nil {
		return "", err
	}
	owner, ok := t.rememberedOwner(ctx)
	if !ok {
		return "Nothing is remembered of this user.", nil
	}
	found, err := t.finder.FindMemories(ctx, owner, args.Query, args.Limit, false)
	if err != nil {
		t.options.Log.WarnContext(ctx, "the memory could not be searched", "error", err)
		return "", errSearchUnavailable
	}
	if found = t.filterMemories(ctx, found); len(found) == 0 {
		return "Nothing was found.", nil
	}
	return quoteMemories(found, 2000), nil
}
