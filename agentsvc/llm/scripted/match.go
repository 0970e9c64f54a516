package scripted

import (
	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// ruleInput is what a rule looks at.
type ruleInput struct {
	text      string // of the matching message
	toolName  string // whose result it is, if it is one
	userText  string // by the user last
	messageID string
}

func newRuleInput(conversation []agentsvc.Entry) ruleInput {
	var input ruleInput
	for i := len(conversation) - 1; i >= 0; i-- {
		if m := conversation[i].Message; m != nil && m.Role == agentsvc.RoleUser {
			input.userText = m.Text()
			input.messageID = string(m.ID)
			break
		}
	}
	input.text = input.userText
	if n := len(conversation); n > 0 && conversation[n-1].Result != nil {
		result := conversation[n-1].Result
		input.text, input.toolName = result.Text, result.Name
	}
	return input
}

// compiledRule is a [Rule] that was checked.
type compiledRule struct {
	text, messageID *pattern.Pattern
	toolName        string
	items           []Item
	usage           *Usage
	standalone      bool
}

// matchInput reports whether r holds for sc, and the values of its placeholders. Where the work fails it reports false.
func (r compiledRule) matchInput(w *pattern.StepBudget, input ruleInput) (map[string]string, bool) {
	if r.toolName != "" && r.toolName != input.toolName {
		return nil, false
	}
	values := map[string]string{"text": input.userText, "result": ""}
	if input.toolName != "" {
		values["result"] = input.text
	}
	if !matchGroups(w, r.text, input.text, values) || !matchGroups(w, r.messageID, input.messageID, values) {
		return nil, false
	}
	return values, true
}

// matchGroups reports whether p, if there is one, matches s, and puts its named groups into values.
func matchGroups(w *pattern.StepBudget, p *pattern.Pattern, s string, values map[string]string) bool {
	if p == nil {
		return true
	}
	found, ok, _ := p.FindGroups(w, s) // the error stays in the work
	for i, text := range found {
		values[p.Names()[i]] = text
	}
	return ok
}
