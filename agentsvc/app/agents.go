package app

import (
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
)

// agentKinds are the agents that can be configured, by type.
var agentKinds = map[string]func(b *builder, a *config.Agent) (agent.Agent, error){
	"llm": llmAgent,
}

func llmAgent(b *builder, a *config.Agent) (agent.Agent, error) {
	model := b.models[a.LLM]
	if model == nil {
		return nil, fmt.Errorf("llm: there is no model %q", a.LLM)
	}
	set, err := b.toolSet(a.Tools, b.cfg.LLMs[a.LLM].MaxToolOutputLength)
	if err != nil {
		return nil, err
	}
	return agent.NewLLM(model, agent.Options{Instruction: a.Instruction, Tools: set, Whole: !a.Streaming}), nil
}

// card describes an agent from what its configuration says, and where it says nothing from what that amounts to.
func card(key string, a *config.Agent) agentsvc.Card {
	c := agentsvc.Card{
		Agent: key, Name: a.Name, Description: a.Description, Version: a.Version, Visibility: agentsvc.Visibility(a.Visibility),
		InputModes: a.InputModes, OutputModes: a.OutputModes, Streaming: a.Streaming,
	}
	if c.Description == "" {
		c.Description = describe(a)
	}
	for _, s := range a.Skills {
		c.Skills = append(c.Skills, agentsvc.Skill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags})
	}
	if len(c.Skills) == 0 {
		c.Skills = []agentsvc.Skill{{ID: key, Name: c.Name, Description: c.Description, Tags: []string{a.Type}}}
	}
	return c
}

// describe never quotes the instruction: a card is public, a system prompt is not.
func describe(a *config.Agent) string {
	if len(a.Tools) == 0 {
		return a.Name + " answers questions."
	}
	return a.Name + " answers questions with the help of " + strings.Join(a.Tools, ", ") + "."
}

// defaultAgent is the agent that defaults.agent names, else the first public one.
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
