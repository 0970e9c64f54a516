package app

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/tenancy/grant"
)

// agentKinds are the agents that can be configured, by type. Those they name are built before them.
var agentKinds = map[string]func(b *builder, name string, a *config.Agent) (agent.Agent, error){
	"llm":        llmAgent,
	"sequential": sequentialAgent,
	"parallel":   parallelAgent,
	"loop":       loopAgent,
	"runner":     runnerAgent,
	"remote":     remoteAgent,
}

func (b *builder) allAgents() map[string]agent.Agent {
	b.built = make(map[string]agent.Agent, len(b.cfg.Agents))
	for _, name := range b.cfg.AgentNames() {
		b.agent(name)
	}
	return b.built
}

// agent builds an agent after those below it. One that cannot be built is nil from then on.
func (b *builder) agent(name string) agent.Agent {
	if known, ok := b.built[name]; ok {
		return known
	}
	a := b.cfg.Agents[name]
	var err error
	for _, below := range slices.Concat(a.SubAgents, a.AgentTools) {
		if b.agent(below) == nil {
			err = errBelow
		}
	}
	var built agent.Agent
	if err == nil {
		built, err = agentKinds[a.Type](b, name, a)
	}
	b.wrong("agents."+name, err)
	b.built[name] = b.watchAgent(name, built)
	return b.built[name]
}

// members are agents by name, as another one knows them.
func (b *builder) members(names []string) []agent.Member {
	members := make([]agent.Member, len(names))
	for i, name := range names {
		members[i] = agent.Member{Name: name, Description: card(name, b.cfg.Agents[name]).Description, Agent: b.built[name]}
	}
	return members
}

func llmAgent(b *builder, name string, a *config.Agent) (agent.Agent, error) {
	model := b.models[a.LLM]
	if model == nil {
		return nil, errBelow
	}
	g := b.guard(a)
	set, err := b.toolSet(a.Tools, b.cfg.LLMs[a.LLM].MaxToolOutputLength, g, b.recallTool(a.Tools, g)...)
	if err != nil {
		return nil, err
	}
	o := agent.Options{
		Instruction: a.Instruction, Prompt: agent.Prompt{Global: a.GlobalInstruction}, Tools: set, Whole: !a.Streaming, MaxBytes: b.maxAnswer,
		SubAgents: b.members(a.SubAgents), AgentTools: g.members(b.members(a.AgentTools)), Window: b.window(name, a, g),
	}
	if b.recall != nil {
		o.Background = g.background(b.recall.Through(g.read).Background)
	}
	if p := a.Prompt; p != nil {
		o.Prompt.System, o.Prompt.Role, o.Prompt.Guidance = p.SystemPrompt, p.Role, p.Guidance
	}
	if r := a.Reasoning; r != nil {
		o.Reasoning = agent.Reasoning{MaxSteps: r.MaxIterations, Exit: r.EnableExitTool, Escalate: r.EnableEscalateTool}
		for _, c := range r.TerminationConditions {
			o.Reasoning.Until = append(o.Reasoning.Until, agent.Condition(c))
		}
	}
	if s := a.StructuredOutput; s != nil {
		if o.Output, err = agent.NewOutput(s.Name, s.Schema, s.Strict); err != nil {
			return nil, agentsvc.Invalid("structured_output.schema", "%v", err)
		}
	}
	return agent.NewLLM(g.model(model), o), nil
}

func groupOptions(a *config.Agent) agent.GroupOptions {
	return agent.GroupOptions{Global: a.GlobalInstruction, Whole: !a.Streaming}
}

func sequentialAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guard(a).agent(agent.NewSequential(b.members(a.SubAgents), groupOptions(a))), nil
}

func parallelAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guard(a).agent(agent.NewParallel(b.members(a.SubAgents), groupOptions(a))), nil
}

func loopAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guard(a).agent(agent.NewLoop(b.members(a.SubAgents), a.MaxIterations, groupOptions(a))), nil
}

func runnerAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	g := b.guard(a)
	set, err := b.toolSet(a.Tools, 0, g)
	if err != nil {
		return nil, err
	}
	return agent.NewRunner(g.model(agent.Pipeline()), set, !a.Streaming), nil
}

func remoteAgent(b *builder, name string, a *config.Agent) (agent.Agent, error) {
	o := agent.RemoteOptions{Name: name, URL: a.URL, CardURL: a.AgentCardURL, Headers: map[string]string{}, Timeout: a.Timeout, Whole: !a.Streaming, HTTP: b.leading(b.out.Patient(a.Timeout))}
	maps.Copy(o.Headers, a.Headers)
	if c := a.Credentials; c != nil {
		o.Headers["Authorization"] = "Bearer " + c.Token
	}
	if a.AgentCardFile != "" {
		at, err := b.place("agent_card_file", grant.Filesystem, a.AgentCardFile)
		if err != nil {
			return nil, err
		}
		card, err := readCard(at)
		if err != nil {
			return nil, agentsvc.Invalid("agent_card_file", "cannot be read: %v", err)
		}
		o.Card = card
	}
	built, err := agent.NewRemote(o)
	if err != nil {
		return nil, err
	}
	return b.guard(a).agent(built), nil
}

// maxCard bounds the file of a card.
const maxCard = 1 << 20

func readCard(at grant.Place) ([]byte, error) {
	open := at.Open
	if at.Root == "" {
		open = func() (*os.File, error) { return os.Open(at.Path) }
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); at.Root != "" && (err != nil || !info.Mode().IsRegular()) {
		return nil, errors.New("is no regular file")
	}
	card, err := io.ReadAll(io.LimitReader(f, maxCard+1))
	if err == nil && len(card) > maxCard {
		err = fmt.Errorf("is longer than %d bytes", maxCard)
	}
	return card, err
}

// onBusy is what each agent does about a message that finds its session at work.
func onBusy(cfg *config.Config) map[string]task.OnBusy {
	all := map[string]task.OnBusy{}
	for name, a := range cfg.Agents {
		if a.Context != nil {
			all[name] = task.OnBusy(a.Context.OnBusy)
		}
	}
	return all
}

const jsonType = "application/json"

// card describes an agent from what its configuration says, and where it says nothing from what that amounts to.
func card(key string, a *config.Agent) agentsvc.Card {
	c := agentsvc.Card{
		Agent: key, Name: a.Name, Description: a.Description, Version: a.Version, Visibility: agentsvc.Visibility(a.Visibility),
		InputModes: a.InputModes, OutputModes: a.OutputModes, Streaming: a.Streaming,
	}
	if c.Description == "" {
		c.Description = describe(a)
	}
	if a.StructuredOutput != nil && !slices.Contains(c.OutputModes, jsonType) {
		c.OutputModes = append(slices.Clip(c.OutputModes), jsonType)
	}
	c.Schemes, c.Require = schemes(a.Security)
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
