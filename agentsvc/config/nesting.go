package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	maxNesting = 8  // agents below each other, the one that is called included
	maxMembers = 32 // agents in one list
)

// callableAgentForm is the name of an agent that a model may call: as a tool, or behind "transfer_to_".
var callableAgentForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,52}$`)

// checkMembers checks the agents that stand below a.
func (a *Agent) checkMembers(c *validation, s location) {
	switch {
	case slices.Contains([]string{"sequential", "parallel", "loop"}, a.Type) && len(a.SubAgents) == 0:
		c.addProblem(s, fmt.Sprintf("a %s agent needs sub_agents", a.Type))
	case a.Type == "runner" && len(a.Tools) == 0:
		c.addProblem(s, "a runner agent needs tools")
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"sub_agents", a.SubAgents}, {"agent_tools", a.AgentTools}} {
		at := s.child(list.key)
		if len(list.names) > maxMembers {
			c.addProblem(at, fmt.Sprintf("names %d agents; at most %d are possible", len(list.names), maxMembers))
		}
		for i, name := range list.names {
			if chain := c.nesting.cycles[[2]string{s.path.part, name}]; chain != nil {
				c.addProblem(at.item(i), "leads back to where it began: "+formatChain(chain))
			}
		}
		if a.Type == "llm" {
			c.checkCallable(a, list.key, list.names, at)
		}
	}
	if chain := c.nesting.deepestChain(s.path.part); len(chain) == maxNesting+1 {
		c.addProblem(s, fmt.Sprintf("nests agents %d deep: %s; at most %d are possible", len(chain), formatChain(chain), maxNesting))
	}
}

// formatChain is a way from agent to agent.
func formatChain(chain []string) string {
	names := make([]string, len(chain))
	for i, name := range chain {
		names[i] = quoteName(name)
	}
	return strings.Join(names, " > ")
}

// checkCallable checks that a model can tell the agents of a list from each other and from its tools.
func (c *validation) checkCallable(a *Agent, key string, names []string, at location) {
	for i, name := range names {
		switch tool := agentToolName(key, name); {
		case agentNameForm.MatchString(name) && !callableAgentForm.MatchString(name):
			c.addProblem(at.item(i), "cannot be called by a model: the name must be 1 to 52 letters, digits, '_' or '-'")
		case slices.Contains(a.Tools, tool), key == "sub_agents" && slices.Contains(a.AgentTools, tool),
			tool == "exit" && a.Reasoning != nil && a.Reasoning.EnableExitTool,
			tool == "escalate" && a.Reasoning != nil && a.Reasoning.EnableEscalateTool:
			c.addProblem(at.item(i), fmt.Sprintf("becomes a tool of the name %s, and the agent has another one", shortenText(tool)))
		}
	}
}

func agentToolName(key, name string) string {
	if key == "sub_agents" {
		return "transfer_to_" + name
	}
	return name
}

// nesting is which agents stand below which.
type nesting struct {
	agents       map[string]*Agent
	depth        map[string]int         // of an agent with all below it, 1 = none; -1 while it is being found out
	deepestChild map[string]string      // the agent below that goes deepest
	cycles       map[[2]string][]string // by the step that closes them
	ancestors    []string               // while it is being found out
}

func newNesting(agents map[string]*Agent, order []string) *nesting {
	n := &nesting{agents, map[string]int{}, map[string]string{}, map[[2]string][]string{}, nil}
	for _, name := range order {
		n.measureDepth(name)
	}
	return n
}

func (n *nesting) measureDepth(name string) int {
	a := n.agents[name]
	if d := n.depth[name]; d != 0 || a == nil {
		return d
	}
	n.depth[name] = -1
	n.ancestors = append(n.ancestors, name)
	deepest := 0
	for _, child := range slices.Concat(a.SubAgents, a.AgentTools) {
		d := n.measureDepth(child)
		if d < 0 {
			from := slices.Index(n.ancestors, child)
			n.cycles[[2]string{name, child}] = append(slices.Clone(n.ancestors[from:]), child)
		}
		if d > deepest {
			deepest, n.deepestChild[name] = d, child
		}
	}
	n.ancestors = n.ancestors[:len(n.ancestors)-1]
	n.depth[name] = deepest + 1
	return deepest + 1
}

// deepestChain is the longest one down from an agent.
func (n *nesting) deepestChain(name string) []string {
	chain := []string{name}
	for child := n.deepestChild[name]; child != "" && len(chain) <= len(n.agents); child = n.deepestChild[child] {
		chain = append(chain, child)
	}
	return chain
}
