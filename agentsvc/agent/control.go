package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Reasoning bounds the loop of an [LLM] agent and says what ends it. The zero value: at most 100 model calls, no exit
// and no escalate tool, and the first answer without tool calls ends the turn.
type Reasoning struct {
	// MaxSteps is the largest number of model calls of one turn, 0 = 100.
	MaxSteps int
	// MaxTransfers is the largest number of transfers of one turn, of this agent and those below it, 0 = 10. Of several
	// agents, that of the first one in the turn counts.
	MaxTransfers int
	// Exit offers the model a tool that ends the turn with an answer.
	Exit bool
	// Escalate offers the model a tool that returns control to the agent above.
	Escalate bool
	// Until lists what ends the turn. Nil means all conditions; without NoToolCalls an answer without tool calls is
	// followed by a prompt to go on.
	Until []Condition
}

// Condition is a way in which the loop of an agent ends. The values are those of the configuration.
type Condition string

// The conditions. Each can be combined with the others.
const (
	NoToolCalls Condition = "no_tool_calls" // an answer without tool calls
	Escalated   Condition = "escalate"      // the agent returns control to the agent above
	Transferred Condition = "transfer"      // another agent has taken over and answered
)

// endsOn reports whether c ends the turn.
func (r Reasoning) endsOn(c Condition) bool { return r.Until == nil || slices.Contains(r.Until, c) }

// The names of the controls. An agent to which control can be transferred has the name [TransferPrefix] plus its own;
// an agent that is used like a tool has its own name.
const (
	ExitTool       = "exit"
	EscalateTool   = "escalate"
	TransferPrefix = "transfer_to_"
)

// control is a tool that steers the turn itself: exit, escalate, a transfer to another agent, or a consultation of one.
// It has no effect outside the turn, so it needs no approval and no recovery: what it does follows from the log.
type control struct {
	spec agentsvc.ToolSpec
	kind controlKind
	// to is the agent of a transfer or a consultation, else zero.
	to Member
}

// controlKind is the kind of a control.
type controlKind int

// The kinds of controls.
const (
	exitControl     controlKind = iota // ends the turn with an answer
	escalateControl                    // returns control to the agent above
	transferControl                    // another agent continues the conversation
	consultControl                     // another agent answers a request
)

// listControls returns the controls that o's agent offers its model: one for each agent tool and sub-agent, then exit
// and escalate as configured.
func listControls(o Options) controlList {
	var list controlList
	add := func(kind controlKind, to Member, name, description, parameters string) {
		spec := agentsvc.ToolSpec{Name: name, Description: description, Parameters: json.RawMessage(parameters)}
		list = append(list, control{spec, kind, to})
	}
	for _, m := range o.AgentTools {
		add(consultControl, m, m.Name, m.Description,
			`{"type":"object","properties":{"request":{"type":"string","description":"what the agent is asked to do, complete in itself"}},"required":["request"]}`)
	}
	for _, m := range o.SubAgents {
		add(transferControl, m, TransferPrefix+m.Name, "Hands the conversation over to the agent "+m.Name+". "+m.Description,
			`{"type":"object","properties":{"note":{"type":"string","description":"what the agent should know in addition to the conversation"}}}`)
	}
	if o.Reasoning.Exit {
		add(exitControl, Member{}, ExitTool, "Ends the work with a final answer.",
			`{"type":"object","properties":{"answer":{"type":"string","description":"the final answer; without it, it is the text of the same answer"}}}`)
	}
	if o.Reasoning.Escalate {
		add(escalateControl, Member{}, EscalateTool, "Gives control back to the agent that handed it over.",
			`{"type":"object","properties":{"reason":{"type":"string","description":"why control goes back"}}}`)
	}
	return list
}

// controlList is the controls of an agent.
type controlList []control

// findControl returns the control with that name, and whether there is one.
func (l controlList) findControl(name string) (control, bool) {
	i := slices.IndexFunc(l, func(c control) bool { return c.spec.Name == name })
	if i < 0 {
		return control{}, false
	}
	return l[i], true
}

// addToSpecs returns what the model can call: the tools of specs, without those that a control hides, then the
// controls.
func (l controlList) addToSpecs(specs []agentsvc.ToolSpec) []agentsvc.ToolSpec {
	if len(l) == 0 {
		return specs
	}
	all := slices.DeleteFunc(slices.Clone(specs), func(s agentsvc.ToolSpec) bool {
		_, isControl := l.findControl(s.Name)
		return isControl
	})
	for _, c := range l {
		all = append(all, c.spec)
	}
	return all
}

// describeEndings returns a sentence for a model that may not end with text alone: it names the controls that end the
// turn.
func (l controlList) describeEndings(r Reasoning) string {
	var names []string
	for _, c := range l {
		ends := c.kind == exitControl || c.kind == escalateControl && r.endsOn(Escalated) || c.kind == transferControl && r.endsOn(Transferred)
		if ends {
			names = append(names, c.spec.Name)
		}
	}
	return "When there is nothing left to do, call " + strings.Join(names, " or ") + "."
}

// hasEscalated reports whether the agent called escalate since the last user message and went on, which happens where
// [Escalated] does not end the turn.
func (l controlList) hasEscalated(conversation []agentsvc.Entry) bool {
	for _, e := range slices.Backward(conversation) {
		if e.Message == nil {
			if c, ok := l.findControl(e.Result.Name); ok && c.kind == escalateControl {
				return true
			}
		} else if e.Message.Role == agentsvc.RoleUser {
			break
		}
	}
	return false
}

// words is the union of the arguments of all controls. Each uses one field: consult Request, transfer Note, exit
// Answer, escalate Reason.
type words struct {
	Request, Note, Answer, Reason string
}

// parseArguments decodes and checks the call's arguments. The error is written for the model, which may correct the
// call.
func (c control) parseArguments(call agentsvc.ToolCall) (w words, err error) {
	if len(call.Arguments) > 0 {
		if err := json.Unmarshal(call.Arguments, &w); err != nil {
			return w, fmt.Errorf("the arguments of %s must be a JSON object whose values are text: %w", call.Name, err)
		}
	}
	if c.kind == consultControl && w.Request == "" {
		return w, fmt.Errorf("the arguments of %s lack request: say what the agent is to do", call.Name)
	}
	return w, nil
}
