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

// agentBuilders are the agents that can be configured, by type. Those they name are built before them.
var agentBuilders = map[string]func(b *builder, name string, a *config.Agent) (agent.Agent, error){
	"llm":        buildLLMAgent,
	"sequential": buildSequentialAgent,
	"parallel":   buildParallelAgent,
	"loop":       buildLoopAgent,
	"runner":     buildRunnerAgent,
	"remote":     buildRemoteAgent,
}

func (b *builder) buildAgents() map[string]agent.Agent {
	b.agents = make(map[string]agent.Agent, len(b.cfg.Agents))
	for _, name := range b.cfg.AgentNames() {
		b.buildAgent(name)
	}
	return b.agents
}

// buildAgent builds an agent after those below it. One that cannot be built is nil from then on.
func (b *builder) buildAgent(name string) agent.Agent {
	if known, ok := b.agents[name]; ok {
		return known
	}
	a := b.cfg.Agents[name]
	var err error
	for _, dependency := range slices.Concat(a.SubAgents, a.AgentTools) {
		if b.buildAgent(dependency) == nil {
			err = errDependencyInvalid
		}
	}
	var built agent.Agent
	if err == nil {
		built, err = agentBuilders[a.Type](b, name, a)
	}
	b.addProblem("agents."+name, err)
	b.agents[name] = b.traceAgent(name, built)
	return b.agents[name]
}

// agentMembers are agents by name, as another one knows them.
func (b *builder) agentMembers(names []string) []agent.Member {
	members := make([]agent.Member, len(names))
	for i, name := range names {
		members[i] = agent.Member{Name: name, Description: newCard(name, b.cfg.Agents[name]).Description, Agent: b.agents[name]}
	}
	return members
}

func buildLLMAgent(b *builder, name string, a *config.Agent) (agent.Agent, error) {
	model := b.models[a.LLM]
	if model == nil {
		return nil, errDependencyInvalid
	}
	g := b.guardrailFor(a)
	set, err := b.newToolSet(a.Tools, b.cfg.LLMs[a.LLM].MaxToolOutputLength, g, b.newMemoryTools(a.Tools, g)...)
	if err != nil {
		return nil, err
	}
	o := agent.Options{
		Instruction: a.Instruction, Prompt: agent.Prompt{Global: a.GlobalInstruction}, Tools: set, CompleteOnly: !a.Streaming, MaxBytes: b.maxAnswerBytes,
		SubAgents: b.agentMembers(a.SubAgents), AgentTools: g.guardMembers(b.agentMembers(a.AgentTools)), Window: b.newWindow(name, a, g),
	}
	if b.recall != nil {
		o.Background = g.guardBackground(b.recall.WithTextFilter(g.filterText).BuildBackground)
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
			return nil, agentsvc.NewInvalidError("structured_output.schema", "%v", err)
		}
	}
	return agent.NewLLM(g.guardModel(model), o), nil
}

func groupOptions(a *config.Agent) agent.GroupOptions {
	return agent.GroupOptions{GlobalInstruction: a.GlobalInstruction, CompleteOnly: !a.Streaming}
}

func buildSequentialAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guardrailFor(a).guardAgent(agent.NewSequential(b.agentMembers(a.SubAgents), groupOptions(a))), nil
}

func buildParallelAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guardrailFor(a).guardAgent(agent.NewParallel(b.agentMembers(a.SubAgents), groupOptions(a))), nil
}

func buildLoopAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guardrailFor(a).guardAgent(agent.NewLoop(b.agentMembers(a.SubAgents), a.MaxIterations, groupOptions(a))), nil
}

func buildRunnerAgent(b *builder, _ string, a *config.Agent) (agent.Agent, error) {
	g := b.guardrailFor(a)
	set, err := b.newToolSet(a.Tools, 0, g)
	if err != nil {
		return nil, err
	}
	return agent.NewToolRunner(g.guardModel(agent.NewPipeline()), set, !a.Streaming), nil
}

func buildRemoteAgent(b *builder, name string, a *config.Agent) (agent.Agent, error) {
	o := agent.RemoteOptions{Name: name, URL: a.URL, CardURL: a.AgentCardURL, Headers: map[string]string{}, Timeout: a.Timeout, CompleteOnly: !a.Streaming, HTTP: b.propagateTrace(b.egressClient.HTTPWithHeaderTimeout(a.Timeout))}
	maps.Copy(o.Headers, a.Headers)
	if c := a.Credentials; c != nil {
		o.Headers["Authorization"] = "Bearer " + c.Token
	}
	if a.AgentCardFile != "" {
		at, err := b.resolvePath("agent_card_file", grant.Filesystem, a.AgentCardFile)
		if err != nil {
			return nil, err
		}
		card, err := readCard(at)
		if err != nil {
			return nil, agentsvc.NewInvalidError("agent_card_file", "cannot be read: %v", err)
		}
		o.Card = card
	}
	built, err := agent.NewRemote(o)
	if err != nil {
		return nil, err
	}
	return b.guardrailFor(a).guardAgent(built), nil
}

// maxCardBytes bounds the file of a card.
const maxCardBytes = 1 << 20

func readCard(at grant.RootedPath) ([]byte, error) {
	open := at.OpenFile
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
	card, err := io.ReadAll(io.LimitReader(f, maxCardBytes+1))
	if err == nil && len(card) > maxCardBytes {
		err = fmt.Errorf("is longer than %d bytes", maxCardBytes)
	}
	return card, err
}

// onBusyByAgent is what each agent does about a message that finds its session at work.
func onBusyByAgent(cfg *config.Config) map[string]task.OnBusy {
	all := map[string]task.OnBusy{}
	for name, a := range cfg.Agents {
		if a.Context != nil {
			all[name] = task.OnBusy(a.Context.OnBusy)
		}
	}
	return all
}

const jsonType = "application/json"

// newCard describes an agent from what its configuration says, and where it says nothing from what that amounts to.
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

// defaultDescription never quotes the instruction: a card is public, a system prompt is not.
func defaultDescription(a *config.Agent) string {
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
