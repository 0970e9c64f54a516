package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stoa/agentsvc/config/document"
)

// Bounds of agents that use agents. Each level runs inside its caller's turn. Transfers of control are bounded when they
// happen, by reasoning.max_transfers.
const (
	maxNesting = 8  // levels, the called agent included
	maxMembers = 32 // agents in one list
)

// callableAgentForm is the form of the name of an agent that a model calls as a tool, or as "transfer_to_" and the
// name. Vendors allow 64 characters for a tool's name.
var callableAgentForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,52}$`)

// checkMembers checks the sub-agents and agent tools of a: their number, cycles, depth and names. Agents may transfer
// control to each other in cycles.
func (a *Agent) checkMembers(c *validation, s document.Location) {
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
		at := s.Child(list.key)
		if len(list.names) > maxMembers {
			c.addProblem(at, fmt.Sprintf("names %d agents; at most %d are possible", len(list.names), maxMembers))
		}
		for i, name := range list.names {
			chain := c.nesting.cycles[[2]string{s.Path.Part, name}]
			switch transfers := a.Type == "llm" && list.key == "sub_agents"; {
			case transfers && name == s.Path.Part:
				c.addProblem(at.Item(i), "is the agent itself, which has control already")
			case !transfers && chain != nil:
				c.addProblem(at.Item(i), "leads back to where it began: "+formatChain(chain))
			}
		}
		if a.Type == "llm" {
			c.checkCallable(a, list.key, list.names, at)
		}
	}
	if chain := c.nesting.deepestChain(s.Path.Part); len(chain) == maxNesting+1 {
		c.addProblem(s, fmt.Sprintf("nests agents %d deep: %s; at most %d are possible", len(chain), formatChain(chain), maxNesting))
	}
}

// formatChain returns a path from agent to agent for a message.
func formatChain(chain []string) string {
	names := make([]string, len(chain))
	for i, name := range chain {
		names[i] = document.QuoteName(name)
	}
	return strings.Join(names, " > ")
}

// checkCallable checks that the agents of a list become tools with valid and distinct names.
func (val *validation) checkCallable(a *Agent, key string, names []string, at document.Location) {
	for i, name := range names {
		switch tool := agentToolName(key, name); {
		case agentNameForm.MatchString(name) && !callableAgentForm.MatchString(name):
			val.addProblem(at.Item(i), "cannot be called by a model: the name must be 1 to 52 letters, digits, '_' or '-'")
		case slices.Contains(a.Tools, tool), key == "sub_agents" && slices.Contains(a.AgentTools, tool),
			tool == "exit" && a.Reasoning != nil && a.Reasoning.EnableExitTool,
			tool == "escalate" && a.Reasoning != nil && a.Reasoning.EnableEscalateTool:
			val.addProblem(at.Item(i), fmt.Sprintf("becomes a tool of the name %s, and the agent has another one", shortenText(tool)))
		}
	}
}

// agentToolName returns the name of the tool by which a model calls an agent of the list key.
func agentToolName(key, name string) string {
	if key == "sub_agents" {
		return "transfer_to_" + name
	}
	return name
}

// nestedAgents returns the agents that a runs within its own turn. Those that it may transfer control to are not among
// them.
func (a *Agent) nestedAgents() []string {
	if a.Type == "llm" {
		return a.AgentTools
	}
	return slices.Concat(a.SubAgents, a.AgentTools)
}

// nesting is the graph of which agent runs which within its turn, with cycles and depths. newNesting computes it once
// for a document in linear time; then it is read-only.
type nesting struct {
	agents map[string]*Agent
	// depth is the number of levels from the agent down, 1 = no members; -1 while it is computed.
	depth        map[string]int
	deepestChild map[string]string      // the member with the greatest depth
	cycles       map[[2]string][]string // a cycle, by the pair of agents that closes it
	ancestors    []string               // path of the depth-first search in progress
}

// newNesting returns the graph of agents, visited in order.
func newNesting(agents map[string]*Agent, order []string) *nesting {
	n := &nesting{agents, map[string]int{}, map[string]string{}, map[[2]string][]string{}, nil}
	for _, name := range order {
		n.measureDepth(name)
	}
	return n
}

// measureDepth computes the depth of an agent by depth-first search and records the cycles it meets. It returns a
// negative number for an agent on the path in progress.
func (n *nesting) measureDepth(name string) int {
	a := n.agents[name]
	if d := n.depth[name]; d != 0 || a == nil {
		return d
	}
	n.depth[name] = -1
	n.ancestors = append(n.ancestors, name)
	deepest := 0
	for _, child := range a.nestedAgents() {
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

// deepestChain returns the longest path down from an agent. In a cycle it stops after as many agents as there are.
func (n *nesting) deepestChain(name string) []string {
	chain := []string{name}
	for child := n.deepestChild[name]; child != "" && len(chain) <= len(n.agents); child = n.deepestChild[child] {
		chain = append(chain, child)
	}
	return chain
}
