package retrieval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/tool"
)

const (
	// maxToolLimit bounds the passages of one call.
	maxToolLimit = 50
	// maxToolRunes bounds the text of a passage that a call returns.
	maxToolRunes = 4000
	// maxToolName is the length of a tool's name that all vendors accept.
	maxToolName = 64
)

// ToolName returns the name of the tool that searches a store: "search_" and the store's name, with "_" for characters
// that vendors do not accept in the name of a tool.
func ToolName(store string) string {
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-') {
			return r
		}
		return '_'
	}, "search_"+store)
	return name[:min(len(name), maxToolName)]
}

// NewTool returns a tool that searches a store for the owner of the turn. Contents says what is in the store, as the
// object of "searches"; filter may be nil.
func NewTool(s *Searcher, contents string, filter TextFilter) tool.Tool {
	return searchTool{s, contents, filter}
}

// searchTool is a tool that searches a store. Neither store nor reader are arguments: a model cannot read for another
// caller.
type searchTool struct {
	*Searcher
	contents string
	filter   TextFilter
}

// Spec implements [tool.Tool].
func (t searchTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{
		Name: ToolName(t.options.Store),
		Description: fmt.Sprintf("Searches %s. Returns numbered passages with their sources, as quoted data. Refer to a passage in the answer by its number in brackets, such as [1].",
			t.contents),
		Parameters: json.RawMessage(fmt.Sprintf(`{
			"type": "object",
			"properties": {
				"query": {"type": "string", "minLength": 1, "maxLength": %d, "description": "What to look for: a question, or words that the documents probably contain."},
				"limit": {"type": "integer", "minimum": 1, "maximum": %d, "description": "How many passages to return at most; %d if left out."},
				"filter": {"type": "object", "maxProperties": %d, "additionalProperties": {"type": "string"}, "description": "Only documents whose metadata has all of these values."}
			},
			"required": ["query"],
			"additionalProperties": false
		}`, maxQueryBytes, maxToolLimit, min(t.options.TopK, maxToolLimit), maxFilter)),
	}
}

// IsIdempotent implements [tool.Tool]: a search changes nothing.
func (t searchTool) IsIdempotent() bool { return true }

// errSearchUnavailable is what a model reads when a search fails. The cause is only logged.
var errSearchUnavailable = errors.New("the documents cannot be searched at present")

// Call implements [tool.Tool].
func (t searchTool) Call(ctx context.Context, in tool.Call) (string, error) {
	var args struct {
		Query  string            `json:"query"`
		Limit  int               `json:"limit"`
		Filter map[string]string `json:"filter"`
	}
	if err := json.Unmarshal(in.Arguments, &args); err != nil {
		return "", err
	}
	q := document.Query{Text: args.Query, Limit: min(args.Limit, maxToolLimit), Filter: args.Filter, Reader: readerOf(in.RunScope)}
	if q.Limit == 0 {
		q.Limit = min(t.options.TopK, maxToolLimit)
	}
	found, err := t.Search(ctx, in.RunScope, q)
	switch {
	case errors.Is(err, agentsvc.CodeInvalid):
		return "", err
	case err != nil:
		t.options.Log.WarnContext(ctx, "a document store could not be searched", "store", t.options.Store, "error", err)
		return "", errSearchUnavailable
	}
	return formatResult(in.RunScope, found, filterPassages(ctx, in.RunScope, found.Passages, t.filter)), nil
}

// readerOf returns the reader for whom the turn's agent searches: the owner of the run, with the roles that the owner had
// when the turn was accepted.
func readerOf(scope agentsvc.RunScope) document.Reader {
	return document.Reader{Owner: scope.Session.Owner, Roles: scope.Roles}
}

// formatResult returns the passages as the result of a tool call.
func formatResult(scope agentsvc.RunScope, found document.Result, readable []document.Passage) string {
	text, exhausted := quotePassages(scope, readable, maxToolRunes, false)
	var notes []string
	if found.Degraded != "" {
		notes = append(notes, found.Degraded)
	}
	if len(readable) < len(found.Passages) {
		notes = append(notes, "passages that a guardrail withholds were left out")
	}
	if exhausted {
		notes = append(notes, fmt.Sprintf("no more than %d passages are given in a turn: answer with those", agentsvc.MaxSources))
	}
	if text == "" {
		text = "No passage was found."
	} else {
		text = "Each line below is a passage of a document. " + quoteRules + text
	}
	if len(notes) > 0 {
		text += "\nNote: " + strings.Join(notes, "; ") + "."
	}
	return text
}
