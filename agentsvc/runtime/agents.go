package runtime

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/grant"
)

// agentBuilders are the types of agents, by their name in the configuration. An agent's members are built before it.
var agentBuilders = map[string]func(b *agentBuilder, name string, a *config.Agent) (agent.Agent, error){
	"llm":        buildLLMAgent,
	"sequential": buildSequentialAgent,
	"parallel":   buildParallelAgent,
	"loop":       buildLoopAgent,
	"runner":     buildRunnerAgent,
	"remote":     buildRemoteAgent,
}

// agentBuilder builds the agents of the configuration of what the other builders have built.
type agentBuilder struct {
	*hostAccess
	traces tracing
	// maxAnswerBytes is [RunLimits].MaxAnswerBytes.
	maxAnswerBytes int
	// sessions has the summaries of conversations.
	sessions   *store.Sessions
	models     map[string]llm.Provider
	guardrails *guardrailSet
	tools      *toolBuilder
	documents  *Documents
	// recall is nil if agents have no memory.
	recall *memory.Recall
	// agents has a nil entry for an agent that could not be built.
	agents map[string]agent.Agent
}

// buildAgents builds all agents of the configuration, by name.
func (b *agentBuilder) buildAgents() map[string]agent.Agent {
	b.agents = make(map[string]agent.Agent, len(b.cfg.Agents))
	for _, name := range b.cfg.AgentNames() {
		b.buildAgent(name)
	}
	return b.agents
}

// buildAgent builds an agent and first its members. If it cannot be built it records the problem and returns nil. An
// agent that is being built is below itself by a transfer of control: there a reference stands for it.
func (b *agentBuilder) buildAgent(name string) agent.Agent {
	if known, ok := b.agents[name]; ok {
		return known
	}
	a := b.cfg.Agents[name]
	reference := &agent.Reference{}
	b.agents[name] = reference
	complete := true
	for _, dependency := range slices.Concat(a.SubAgents, a.AgentTools) {
		if b.buildAgent(dependency) == nil {
			complete = false
		}
	}
	if !complete {
		// A missing member has its own problem in the list already. Without members the agent is built for its own.
		alone := *a
		alone.SubAgents, alone.AgentTools = nil, nil
		a = &alone
	}
	built, err := agentBuilders[a.Type](b, name, a)
	b.addProblem("agents."+name, err)
	if !complete {
		built = nil
	}
	// Also without an agent: a nil entry means that it was tried.
	b.agents[name] = b.traces.traceAgent(name, built)
	reference.Target = b.agents[name]
	return b.agents[name]
}

// agentMembers returns agents by name as members of another one, with the descriptions that its model reads.
func (b *agentBuilder) agentMembers(names []string) []agent.Member {
	members := make([]agent.Member, len(names))
	for i, name := range names {
		members[i] = agent.Member{Name: name, Description: newCard(name, b.cfg.Agents[name]).Description, Agent: b.agents[name]}
	}
	return members
}

// buildLLMAgent builds an agent of type llm. Input that the guardrail blocks must not be looked up in the memory
// either, so the guardrail wraps the model, the tools and the background.
func buildLLMAgent(b *agentBuilder, name string, a *config.Agent) (agent.Agent, error) {
	// A schema that does not compile is a problem of the configuration, with its path.
	var output *agent.Output
	if s := a.StructuredOutput; s != nil {
		var err error
		if output, err = agent.NewOutput(b.appID(), s.Name, s.Schema, s.Strict); err != nil {
			return nil, agentsvc.NewInvalidError("structured_output.schema", "%v", err)
		}
	}
	model := b.models[a.LLM]
	if model == nil {
		return nil, errDependencyInvalid
	}
	// The same guardrail wraps the model, the tools, the agents used as tools, the window and the background.
	g := b.guardrails.guardrailFor(a)
	set, err := b.tools.newToolSet(a.Tools, b.cfg.LLMs[a.LLM].MaxToolOutputLength, g, slices.Concat(b.newMemoryTools(a.Tools, g), b.newSearchTools(a, g))...)
	if err != nil {
		return nil, err
	}
	o := agent.Options{
		Instruction: a.Instruction, Prompt: agent.Prompt{Global: a.GlobalInstruction}, Tools: set, CompleteOnly: !a.Streaming, MaxBytes: b.maxAnswerBytes,
		Output: output, SubAgents: b.agentMembers(a.SubAgents), AgentTools: g.guardMembers(b.agentMembers(a.AgentTools)), Window: b.newWindow(name, a, g),
	}
	o.Background = b.newBackground(a, g)
	if p := a.Prompt; p != nil {
		o.Prompt.System, o.Prompt.Role, o.Prompt.Guidance = p.SystemPrompt, p.Role, p.Guidance
	}
	if r := a.Reasoning; r != nil {
		o.Reasoning = agent.Reasoning{MaxSteps: r.MaxIterations, MaxTransfers: r.MaxTransfers, Exit: r.EnableExitTool, Escalate: r.EnableEscalateTool}
		for _, c := range r.TerminationConditions {
			o.Reasoning.Until = append(o.Reasoning.Until, agent.Condition(c))
		}
	}
	return agent.NewLLM(g.guardModel(model), o), nil
}

// groupOptions returns the options that all agents with members have.
func groupOptions(a *config.Agent) agent.GroupOptions {
	return agent.GroupOptions{GlobalInstruction: a.GlobalInstruction, CompleteOnly: !a.Streaming}
}

// buildSequentialAgent builds an agent of type sequential. Its guardrail judges the whole turn, not the messages
// between the members.
func buildSequentialAgent(b *agentBuilder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guardrails.guardrailFor(a).guardAgent(agent.NewSequential(b.agentMembers(a.SubAgents), groupOptions(a))), nil
}

func buildParallelAgent(b *agentBuilder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guardrails.guardrailFor(a).guardAgent(agent.NewParallel(b.agentMembers(a.SubAgents), groupOptions(a))), nil
}

func buildLoopAgent(b *agentBuilder, _ string, a *config.Agent) (agent.Agent, error) {
	return b.guardrails.guardrailFor(a).guardAgent(agent.NewLoop(b.agentMembers(a.SubAgents), a.MaxIterations, groupOptions(a))), nil
}

// buildRunnerAgent builds an agent of type runner: it calls its tools in order, without a model.
func buildRunnerAgent(b *agentBuilder, _ string, a *config.Agent) (agent.Agent, error) {
	g := b.guardrails.guardrailFor(a)
	set, err := b.tools.newToolSet(a.Tools, 0, g)
	if err != nil {
		return nil, err
	}
	return agent.NewToolRunner(g.guardModel(agent.NewPipeline()), set, !a.Streaming), nil
}

// buildRemoteAgent builds an agent of type remote, which calls an agent on another server by A2A. A card in a file is
// read now, so that a later change of the file has no effect.
func buildRemoteAgent(b *agentBuilder, name string, a *config.Agent) (agent.Agent, error) {
	if a.URL == "" && a.AgentCardURL == "" && a.AgentCardFile == "" {
		return nil, errDependencyInvalid // a missing address is refused before
	}
	o := agent.RemoteOptions{Name: name, URL: a.URL, CardURL: a.AgentCardURL, Headers: map[string]string{}, Timeout: a.Timeout, CompleteOnly: !a.Streaming, MaxBytes: b.maxAnswerBytes, HTTP: b.traces.propagateTrace(b.egressClient.HTTPWithHeaderTimeout(a.Timeout))}
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
	return b.guardrails.guardrailFor(a).guardAgent(built), nil
}

// maxCardBytes bounds the file of an agent card.
const maxCardBytes = 1 << 20

// readCard reads an agent card. Within a granted folder the file must be a regular one, not a device or a pipe.
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

// onBusyByAgent returns, by agent, what happens to a message whose session already has a turn in progress.
func onBusyByAgent(cfg *config.Config) map[string]task.OnBusy {
	all := map[string]task.OnBusy{}
	for name, a := range cfg.Agents {
		if a.Context != nil {
			all[name] = task.OnBusy(a.Context.OnBusy)
		}
	}
	return all
}
