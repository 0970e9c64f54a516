package scripted

import (
	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// scene is what a rule looks at.
type scene struct {
	text      string // of the matching message
	tool      string // whose result it is, if it is one
	said      string // by the user last
	messageID string
}

func look(conversation []agentsvc.Entry) scene {
	var sc scene
	for i := len(conversation) - 1; i >= 0; i-- {
		if m := conversation[i].Message; m != nil && m.Role == agentsvc.RoleUser {
			sc.said = m.Text()
			sc.messageID = string(m.ID)
			break
		}
	}
	sc.text = sc.said
	if n := len(conversation); n > 0 && conversation[n-1].Result != nil {
		result := conversation[n-1].Result
		sc.text, sc.tool = result.Text, result.Name
	}
	return sc
}

// rule is a [Rule] that was checked.
type rule struct {
	text, messageID *pattern.Pattern
	tool            string
	items           []Item
	usage           *Usage
	alone           bool
}

// match reports whether r holds for sc, and the values of its placeholders. Where the work fails it reports false.
func (r rule) match(w *pattern.Work, sc scene) (map[string]string, bool) {
	if r.tool != "" && r.tool != sc.tool {
		return nil, false
	}
	values := map[string]string{"text": sc.said, "result": ""}
	if sc.tool != "" {
		values["result"] = sc.text
	}
	if !groups(w, r.text, sc.text, values) || !groups(w, r.messageID, sc.messageID, values) {
		return nil, false
	}
	return values, true
}

// groups reports whether p, if there is one, matches s, and puts its named groups into values.
func groups(w *pattern.Work, p *pattern.Pattern, s string, values map[string]string) bool {
	if p == nil {
		return true
	}
	found, ok, _ := p.Groups(w, s) // the error stays in the work
	for i, text := range found {
		values[p.Names()[i]] = text
	}
	return ok
}
