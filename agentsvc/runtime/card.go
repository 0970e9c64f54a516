package runtime

import (
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm"
)

// cardSet is the descriptions of an app's agents. It is read-only.
type cardSet struct {
	list []agentsvc.Card
	// index has the index in list by the agent's name.
	index map[string]int
	// defaultAgent is the agent of the default card, "" if there is none.
	defaultAgent string
}

// newCardSet returns the cards of all agents of the configuration, in its order.
func newCardSet(cfg *config.Config, models *modelBuilder) cardSet {
	s := cardSet{index: map[string]int{}}
	for _, name := range cfg.AgentNames() {
		s.index[name] = len(s.list)
		c := newCard(name, cfg.Agents[name])
		if len(c.InputModes) == 0 {
			c.InputModes = defaultInputModes(cfg.LLMs[cfg.Agents[name].LLM])
		}
		c.StandaloneReplies = models.hasMessageReply(cfg.Agents[name].LLM)
		s.list = append(s.list, c)
	}
	s.defaultAgent = defaultAgent(cfg, s.list)
	return s
}

// findCard returns the description of an agent, and whether there is such an agent.
func (s cardSet) findCard(name string) (agentsvc.Card, bool) {
	i, ok := s.index[name]
	if !ok {
		return agentsvc.Card{}, false
	}
	return s.list[i], true
}

// defaultInputModes returns what an agent reads that names no input modes: plain text, and the images that its model
// reads. l is nil for an agent without a model.
func defaultInputModes(l *config.LLM) []string {
	modes := []string{"text/plain"}
	if l == nil {
		return modes
	}
	return append(modes, llm.ImageTypesOf(l.Provider, l.Model)...)
}

// jsonType is added to the output modes of an agent with structured output.
const jsonType = "application/json"

// newCard returns the agent card of a configuration. Missing fields get defaults, except those that follow from the
// agent's model.
func newCard(key string, a *config.Agent) agentsvc.Card {
	c := agentsvc.Card{
		Agent: key, Name: a.Name, Description: a.Description, Version: a.Version, Visibility: agentsvc.Visibility(a.Visibility),
		InputModes: a.InputModes, OutputModes: a.OutputModes, Streaming: a.Streaming,
	}
	if c.Description == "" {
		c.Description = defaultDescription(a)
	}
	if a.StructuredOutput != nil && !slices.Contains(c.OutputModes, jsonType) {
		c.OutputModes = append(slices.Clip(c.OutputModes), jsonType)
	}
	c.Schemes, c.RequiredSchemes = securitySchemes(a.Security)
	for _, s := range a.Skills {
		c.Skills = append(c.Skills, agentsvc.Skill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags})
	}
	if len(c.Skills) == 0 {
		c.Skills = []agentsvc.Skill{{ID: key, Name: c.Name, Description: c.Description, Tags: []string{a.Type}}}
	}
	return c
}

// defaultDescription returns the description of an agent that has none. It never quotes the instruction: cards are
// public, system prompts are not.
func defaultDescription(a *config.Agent) string {
	if len(a.Tools) == 0 {
		return a.Name + " answers questions."
	}
	return a.Name + " answers questions with the help of " + strings.Join(a.Tools, ", ") + "."
}

// defaultAgent returns the agent that defaults.agent names, else the first public one, else "".
func defaultAgent(cfg *config.Config, cards []agentsvc.Card) string {
	if cfg.Defaults.Agent != "" {
		return cfg.Defaults.Agent
	}
	for _, c := range cards {
		if c.Visibility == agentsvc.Public {
			return c.Agent
		}
	}
	return ""
}
