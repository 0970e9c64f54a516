package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Reasoning bounds and ends the loop of an [LLM] agent. The zero value is a hundred model calls, no tools that end the
// loop, and an end with the first answer that calls no tool.
type Reasoning struct {
	MaxSteps int  // model calls of one turn, 0 = 100
	Exit     bool // a tool that ends the turn with an answer
	Escalate bool // a tool that gives control back to the agent above
	// Until is what ends the turn: [NoToolCalls], [Escalated], [Transferred]. Nil is all of them.
	Until []Condition
}

// Condition is something that ends the loop of an agent.
type Condition string

// The conditions.
const (
	NoToolCalls Condition = "no_tool_calls" // an answer that calls no tool
	Escalated   Condition = "escalate"      // the agent gives control back
	Transferred Condition = "transfer"      // another agent has taken over and answered
)

func (r Reasoning) endsOn(c Condition) bool { return r.Until == nil || slices.Contains(r.Until, c) }

// The names of the tools that steer the turn itself. An agent that control can be transferred to has [TransferPrefix]
// before its name, one that is used like a tool goes by its name.
const (
	ExitTool       = "exit"
	EscalateTool   = "escalate"
	TransferPrefix = "transfer_to_"
)

// control is a tool of the turn itself. It runs no effect that would have to be recovered: what it does follows from
// the journal.
type control struct {
	spec agentsvc.ToolSpec
	kind controlKind
	to   Member // of transfer and consult
}

type controlKind int

const (
	exitControl     controlKind = iota // ends the turn
	escalateControl                    // gives control back
	transferControl                    // has another agent go on with the conversation
	consultControl                     // has another agent answer a request
)

// listControls lists the tools by which o steers a turn.
func listControls(o Options) []control {
	var list []control
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
			`{"type":"object","properties":{"note":{"type":"string","description":"what the agent should know beyond what was said"}}}`)
	}
	if o.Reasoning.Exit {
		add(exitControl, Member{}, ExitTool, "Ends the work with a final answer.",
			`{"type":"object","properties":{"answer":{"type":"string","description":"the final answer; without it, it is the text beside the call"}}}`)
	}
	if o.Reasoning.Escalate {
		add(escalateControl, Member{}, EscalateTool, "Gives control back to whoever handed it over.",
			`{"type":"object","properties":{"reason":{"type":"string","description":"why control goes back"}}}`)
	}
	return list
}

// listToolSpecs describes what the agent can call, for as long as the turn lasts.
func (t *llmRun) listToolSpecs() []agentsvc.ToolSpec {
	if len(t.controls) == 0 {
		return t.options.Tools.Specs()
	}
	specs := slices.DeleteFunc(slices.Clone(t.options.Tools.Specs()), func(s agentsvc.ToolSpec) bool {
		_, isControl := t.findControl(s.Name)
		return isControl
	})
	for _, c := range t.controls {
		specs = append(specs, c.spec)
	}
	return specs
}

// findControl returns the control of that name.
func (t *llmRun) findControl(name string) (control, bool) {
	i := slices.IndexFunc(t.controls, func(c control) bool { return c.spec.Name == name })
	if i < 0 {
		return control{}, false
	}
	return t.controls[i], true
}

// describeEndings tells a model that may not end with words alone how it can.
func (t *llmRun) describeEndings() string {
	var names []string
	for _, c := range t.controls {
		ends := c.kind == exitControl || c.kind == escalateControl && t.options.Reasoning.endsOn(Escalated) || c.kind == transferControl && t.options.Reasoning.endsOn(Transferred)
		if ends {
			names = append(names, c.spec.Name)
		}
	}
	return "When there is nothing left to do, call " + strings.Join(names, " or ") + "."
}

// hasEscalated reports whether the agent has called escalate in this turn and gone on.
func (t *llmRun) hasEscalated() bool {
	for _, e := range slices.Backward(t.conversation) {
		if e.Message == nil {
			if c, ok := t.findControl(e.Result.Name); ok && c.kind == escalateControl {
				return true
			}
		} else if e.Message.Role == agentsvc.RoleUser {
			break
		}
	}
	return false
}

// words is what the arguments of all controls can hold.
type words struct {
	Request, Note, Answer, Reason string
}

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
