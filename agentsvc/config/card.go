package config

import (
	"fmt"

	"stoa/agentsvc/config/document"
)

// Bounds of the texts on agent cards. Cards are public: anyone may request all cards of an app in one response, in
// which a description may occur twice. Lengths are in bytes.
const (
	maxAgents      = 2000
	maxCardBytes   = 1 << 20 // of all agents together
	maxDescription = 8 << 10
	maxSkills      = 100
	maxSkillText   = 2 << 10 // of a skill's description
	maxTags        = 50      // tags of a skill, media types of an agent
	maxShortText   = 256     // of a name, id, version, tag or media type
)

// cardTextChecker sums the texts on all cards and reports those that are too long.
type cardTextChecker struct {
	validation *validation
	bytes      int // sum over all agents
}

// checkText adds text to the sum and reports it if it is longer than maxBytes.
func (t *cardTextChecker) checkText(s document.Location, text string, maxBytes int) {
	t.bytes += len(text)
	if len(text) > maxBytes {
		t.validation.addProblem(s, fmt.Sprintf("is %d bytes long, and may be %d: it is shown to everyone who may read the card", len(text), maxBytes))
	}
}

// checkTexts checks a list of short texts.
func (t *cardTextChecker) checkTexts(s document.Location, texts []string) {
	if len(texts) > maxTags {
		t.validation.addProblem(s, fmt.Sprintf("has %d entries, and may have %d", len(texts), maxTags))
	}
	for i, text := range texts {
		t.checkText(s.Item(i), text, maxShortText)
	}
}

// checkCards checks the texts on the cards of all agents; s is the location of agents.
func (val *validation) checkCards(s document.Location, agents map[string]*Agent) {
	if len(agents) > maxAgents {
		val.addProblem(s, fmt.Sprintf("has %d agents, and may have %d: give the others an app of their own", len(agents), maxAgents))
	}
	t := cardTextChecker{validation: val}
	for _, name := range val.entryNames["agents"] {
		if a := agents[name]; a != nil {
			a.checkCardTexts(&t, s.Child(name))
		}
	}
	if t.bytes > maxCardBytes {
		val.addProblem(s, fmt.Sprintf("the descriptions, skills, names and media types of all agents have %d bytes together, and may have %d: shorten them, "+
			"or give some agents an app of their own", t.bytes, maxCardBytes))
	}
}

// checkCardTexts adds the texts of the agent's card to t.
func (a *Agent) checkCardTexts(t *cardTextChecker, s document.Location) {
	t.checkText(s.Child("name"), a.Name, maxShortText)
	t.checkText(s.Child("description"), a.Description, maxDescription)
	t.checkText(s.Child("version"), a.Version, maxShortText)
	t.checkTexts(s.Child("input_modes"), a.InputModes)
	t.checkTexts(s.Child("output_modes"), a.OutputModes)
	if a.Description == "" { // the card's description then lists the tools
		for _, tool := range a.Tools {
			t.bytes += len(tool) + len(", ")
		}
	}
	at := s.Child("skills")
	if len(a.Skills) > maxSkills {
		t.validation.addProblem(at, fmt.Sprintf("has %d skills, and may have %d", len(a.Skills), maxSkills))
	}
	for i, skill := range a.Skills {
		if skill == nil {
			continue
		}
		item := at.Item(i)
		t.checkText(item.Child("id"), skill.ID, maxShortText)
		t.checkText(item.Child("name"), skill.Name, maxShortText)
		t.checkText(item.Child("description"), skill.Description, maxSkillText)
		t.checkTexts(item.Child("tags"), skill.Tags)
	}
}
