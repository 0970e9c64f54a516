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

// callableAgent is the name of an agent that a model may call: as a tool, or behind "transfer_to_".
var callableAgent = regexp.MustCompile(`^[A-Za-z0-9_-]{1,52}$`)

// members checks the agents that stand below a.
func (a *Agent) members(c *checks, s spot) {
	switch {
	case slices.Contains([]string{"sequential", "parallel", "loop"}, a.Type) && len(a.SubAgents) == 0:
		c.problem(s, fmt.Sprintf("a %s agent needs sub_agents", a.Type))
	case a.Type == "runner" && len(a.Tools) == 0:
		c.problem(s, "a runner agent needs tools")
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"sub_agents", a.SubAgents}, {"agent_tools", a.AgentTools}} {
		at := s.child(list.key)
		if len(list.names) > maxMembers {
			c.problem(at, fmt.Sprintf("names %d agents; at most %d are possible", len(list.names), maxMembers))
		}
		for i, name := range list.names {
			if way := c.nesting.cycles[[2]string{s.path.part, name}]; way != nil {
				c.problem(at.item(i), "leads back to where it began: "+route(way))
			}
		}
		if a.Type == "llm" {
			c.callable(a, list.key, list.names, at)
		}
	}
	if way := c.nesting.way(s.path.part); len(way) == maxNesting+1 {
		c.problem(s, fmt.Sprintf("nests agents %d deep: %s; at most %d are possible", len(way), route(way), maxNesting))
	}
}

// route is a way from agent to agent.
func route(way []string) string {
	names := make([]string, len(way))
	for i, name := range way {
		names[i] = readable(name)
	}
	return strings.Join(names, " > ")
}

// callable checks that a model can tell the agents of a list from each other and from its tools.
func (c *checks) callable(a *Agent, key string, names []string, at spot) {
	for i, name := range names {
		switch tool := toolOf(key, name); {
		case agentName.MatchString(name) && !callableAgent.MatchString(name):
			c.problem(at.item(i), "cannot be called by a model: the name must be 1 to 52 letters, digits, '_' or '-'")
		case slices.Contains(a.Tools, tool), key == "sub_agents" && slices.Contains(a.AgentTools, tool),
			tool == "exit" && a.Reasoning != nil && a.Reasoning.EnableExitTool,
			tool == "escalate" && a.Reasoning != nil && a.Reasoning.EnableEscalateTool:
			c.problem(at.item(i), fmt.Sprintf("becomes a tool of the name %s, and the agent has another one", shorten(tool)))
		}
	}
}

func toolOf(key, name string) string {
	if key == "sub_agents" {
		return "transfer_to_" + name
	}
	return name
}

// nesting is which agents stand below which.
type nesting struct {
	agents map[string]*Agent
	depth  map[string]int         // of an agent with all below it, 1 = none; -1 while it is being found out
	next   map[string]string      // the agent below that goes deepest
	cycles map[[2]string][]string // by the step that closes them
	above  []string               // while it is being found out
}

func newNesting(agents map[string]*Agent, order []string) *nesting {
	n := &nesting{agents, map[string]int{}, map[string]string{}, map[[2]string][]string{}, nil}
	for _, name := range order {
		n.visit(name)
	}
	return n
}

func (n *nesting) visit(name string) int {
	a := n.agents[name]
	if d := n.depth[name]; d != 0 || a == nil {
		return d
	}
	n.depth[name] = -1
	n.above = append(n.above, name)
	deepest := 0
	for _, below := range slices.Concat(a.SubAgents, a.AgentTools) {
		d := n.visit(below)
		if d < 0 {
			from := slices.Index(n.above, below)
			n.cycles[[2]string{name, below}] = append(slices.Clone(n.above[from:]), below)
		}
		if d > deepest {
			deepest, n.next[name] = d, below
		}
	}
	n.above = n.above[:len(n.above)-1]
	n.depth[name] = deepest + 1
	return deepest + 1
}

// way is the longest one down from an agent.
func (n *nesting) way(name string) []string {
	way := []string{name}
	for below := n.next[name]; below != "" && len(way) <= len(n.agents); below = n.next[below] {
		way = append(way, below)
	}
	return way
}
