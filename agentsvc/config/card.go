package config

import "fmt"

// Bounds of what agents say of themselves. Cards are shown to whoever asks, all of an app in one answer, and a description may stand
// there twice. Lengths are in bytes.
const (
	maxAgents      = 2000
	maxCards       = 1 << 20 // of all agents together
	maxDescription = 8 << 10
	maxSkills      = 100
	maxSkillText   = 2 << 10 // a skill's description
	maxTags        = 50      // of a skill, and media types of an agent
	maxShortText   = 256     // names, ids, versions, tags, media types
)

// said adds up the texts that agents say of themselves, and tells of those that are too long.
type said struct {
	c     *checks
	bytes int
}

func (t *said) text(s spot, text string, most int) {
	t.bytes += len(text)
	if len(text) > most {
		t.c.problem(s, fmt.Sprintf("is %d bytes long, and may be %d: it is shown to whoever asks for the card", len(text), most))
	}
}

func (t *said) list(s spot, texts []string) {
	if len(texts) > maxTags {
		t.c.problem(s, fmt.Sprintf("has %d entries, and may have %d", len(texts), maxTags))
	}
	for i, text := range texts {
		t.text(s.item(i), text, maxShortText)
	}
}

// cards checks what all agents say of themselves, which stands at s.
func (c *checks) cards(s spot, agents map[string]*Agent) {
	if len(agents) > maxAgents {
		c.problem(s, fmt.Sprintf("has %d agents, and may have %d: give the others an app of their own", len(agents), maxAgents))
	}
	t := said{c: c}
	for _, name := range c.names["agents"] {
		if a := agents[name]; a != nil {
			a.says(&t, s.child(name))
		}
	}
	if t.bytes > maxCards {
		c.problem(s, fmt.Sprintf("the descriptions, skills, names and media types of all agents have %d bytes together, and may have %d: shorten them, "+
			"or give some agents an app of their own", t.bytes, maxCards))
	}
}

// says adds up what stands on the agent's card.
func (a *Agent) says(t *said, s spot) {
	t.text(s.child("name"), a.Name, maxShortText)
	t.text(s.child("description"), a.Description, maxDescription)
	t.text(s.child("version"), a.Version, maxShortText)
	t.list(s.child("input_modes"), a.InputModes)
	t.list(s.child("output_modes"), a.OutputModes)
	if a.Description == "" { // made of the tools' names
		for _, tool := range a.Tools {
			t.bytes += len(tool) + len(", ")
		}
	}
	at := s.child("skills")
	if len(a.Skills) > maxSkills {
		t.c.problem(at, fmt.Sprintf("has %d skills, and may have %d", len(a.Skills), maxSkills))
	}
	for i, skill := range a.Skills {
		if skill == nil {
			continue
		}
		item := at.item(i)
		t.text(item.child("id"), skill.ID, maxShortText)
		t.text(item.child("name"), skill.Name, maxShortText)
		t.text(item.child("description"), skill.Description, maxSkillText)
		t.list(item.child("tags"), skill.Tags)
	}
}
