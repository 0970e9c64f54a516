package scripted

import (
	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// ruleInput is what rules are matched against.
type ruleInput struct {
	// text is the matching message's text; toolName is the tool whose result it is, "" for a user's message.
	text     string
	toolName string
	// userText and messageID are those of the last user message.
	userText  string
	messageID string
}

// newRuleInput returns the input for a conversation.
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
	// A conversation that ends with a result continues a turn: the result is the matching message.
	if n := len(conversation); n > 0 && conversation[n-1].Result != nil {
		result := conversation[n-1].Result
		input.text, input.toolName = result.Text, result.Name
	}
	return input
}

// compiledRule is a checked [Rule]. Nil patterns match everything.
type compiledRule struct {
	text, messageID *pattern.Pattern
	toolName        string
	items           []Item
	usage           *Usage
	standalone      bool
}

// matchInput reports whether r matches, and returns the values of its placeholders. If the budget fails it returns
// false; the caller checks the budget.
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

// matchGroups reports whether p matches s, and adds its named groups to values. A nil p matches.
func matchGroups(w *pattern.StepBudget, p *pattern.Pattern, s string, values map[string]string) bool {
	if p == nil {
		return true
	}
	found, ok, _ := p.FindGroups(w, s) // the budget keeps the error
	for i, text := range found {
		values[p.Names()[i]] = text
	}
	return ok
}
