package runner

import (
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
)

// turnState is what is known of the turn that a run executes: the fold of its facts, of earlier attempts and of this
// one. It belongs to the goroutine of [Runner.Run], except findings and sources.
type turnState struct {
	// entries are what the turn adds to its session, the user's message first. Written to the session only when the
	// turn ends.
	entries []agentsvc.Entry
	// frames are the conversations of the sub-agents, by frame path. They last as long as the turn and never reach
	// the session.
	frames map[string][]agentsvc.Entry
	// calls are all tool calls of the turn, of sub-agents too; the final message lists them.
	calls []agentsvc.ToolCall
	// callStates are decisions, supplied credentials and whether the call has begun after them, by frame and call.
	callStates map[agent.CallKey]agent.CallState
	// credentialRequests counts, by tool, the pauses of this turn that asked for the tool's credential. Agents use it
	// to give up after repeated requests.
	credentialRequests map[string]int
	// openCredentialRequests are the tools whose credential is requested since the last status of the journal. A set,
	// because parallel calls that need the same credential request it once.
	openCredentialRequests map[string]bool
	// approvals are the open questions of the agent. They are written with the status that pauses the run.
	approvals []agentsvc.Event
	usage     agentsvc.Usage
	// findings are what guardrails report. They have a lock of their own.
	findings findings
	// sources are the passages that the models are given. They have a lock of their own.
	sources sources
}

// applyEvent updates the in-memory state of the turn by one fact. It runs for replayed and for new facts alike, so
// that a retry sees the state that the interrupted attempt had.
func (t *turnState) applyEvent(ev agentsvc.Event) {
	switch {
	case ev.Status != nil && ev.Status.State == agentsvc.Submitted:
		t.addEntry(ev.Frame, agentsvc.Entry{Message: ev.Status.Message})
	case ev.Status != nil:
		// A pause counts the requests that precede it. A working status finds no open requests.
		t.countCredentialRequests()
	case ev.Approval != nil:
		t.addCredentialRequest(*ev.Approval)
	case ev.Message != nil:
		t.addEntry(ev.Frame, agentsvc.Entry{Message: ev.Message})
		for _, c := range ev.Message.ToolCalls {
			c.Thought = "" // the vendor's reasoning token is for the model only; callers see the calls in the final message
			t.calls = append(t.calls, c)
		}
	case ev.Call != nil:
		t.markCallBegun(ev.Frame, *ev.Call)
	case ev.Decision != nil:
		t.applyDecision(ev.Frame, *ev.Decision)
	case ev.Result != nil:
		t.addEntry(ev.Frame, agentsvc.Entry{Result: ev.Result})
	case ev.Usage != nil:
		t.usage = t.usage.Add(*ev.Usage)
	case ev.Finding != nil:
		t.findings.markRecorded(*ev.Finding)
	case ev.Sources != nil:
		t.sources.markRecorded(*ev.Sources)
	}
}

// addCredentialRequest notes that a credential was requested. Other kinds of approvals are ignored.
func (t *turnState) addCredentialRequest(a agentsvc.Approval) {
	if a.Kind != agentsvc.SupplyCredential {
		return
	}
	if t.openCredentialRequests == nil {
		t.openCredentialRequests = map[string]bool{}
	}
	t.openCredentialRequests[a.Credential.Tool] = true
}

// countCredentialRequests closes the current set of requests: the turn paused with them, which counts once for each
// tool.
func (t *turnState) countCredentialRequests() {
	for name := range t.openCredentialRequests {
		if t.credentialRequests == nil {
			t.credentialRequests = map[string]int{}
		}
		t.credentialRequests[name]++
	}
	t.openCredentialRequests = nil
}

// markCallBegun records that an approved call has started. The state replaces the decision: if the process stops
// during the call, the next attempt must ask again instead of running a call whose outcome is unknown.
func (t *turnState) markCallBegun(frame string, c agentsvc.ToolCall) {
	t.setCallState(agent.CallKey{Frame: frame, Call: c.ID}, agent.CallState{Begun: &c})
}

// applyDecision stores a decision for its call. A supplied credential does not replace an earlier decision about the
// same call. Arguments that the approver changed replace those of the model's message, so that model, log and tool
// agree.
func (t *turnState) applyDecision(frame string, d agentsvc.Decision) {
	key := agent.CallKey{Frame: frame, Call: d.Call}
	s := t.callStates[key]
	if d.Outcome == agentsvc.OutcomeSupplied {
		s.Supplied = true
	} else {
		s.Decision = &d
	}
	t.setCallState(key, s)
	if d.Outcome != agentsvc.OutcomeApproved || d.Arguments == nil {
		return
	}
	amendArguments(t.calls, d)
	entries := t.entries
	if frame != "" {
		entries = t.frames[frame]
	}
	for i, e := range entries {
		if e.Message != nil && slices.ContainsFunc(e.Message.ToolCalls, func(c agentsvc.ToolCall) bool { return c.ID == d.Call }) {
			// Copy on write: the message and its call list may be shared with the event that was read.
			m := *e.Message
			m.ToolCalls = slices.Clone(m.ToolCalls)
			amendArguments(m.ToolCalls, d)
			entries[i].Message = &m
		}
	}
}

// amendArguments sets the decided arguments on the call that d is about.
func amendArguments(calls []agentsvc.ToolCall, d agentsvc.Decision) {
	for i := range calls {
		if calls[i].ID == d.Call {
			calls[i].Arguments = d.Arguments
		}
	}
}

func (t *turnState) setCallState(key agent.CallKey, s agent.CallState) {
	if t.callStates == nil {
		t.callStates = map[agent.CallKey]agent.CallState{}
	}
	t.callStates[key] = s
}

// addEntry appends an entry to the conversation of its frame: "" is the task's own agent, whose entries become the
// session's.
func (t *turnState) addEntry(frame string, e agentsvc.Entry) {
	if frame == "" {
		t.entries = append(t.entries, e)
		return
	}
	if t.frames == nil {
		t.frames = map[string][]agentsvc.Entry{}
	}
	t.frames[frame] = append(t.frames[frame], e)
}

// completesToolRound reports whether ev is the last result of the calls that the frame's last message made. The agent
// then continues at once.
func (t *turnState) completesToolRound(ev agentsvc.Event) bool {
	if ev.Result == nil {
		return false
	}
	entries := t.entries
	if ev.Frame != "" {
		entries = t.frames[ev.Frame]
	}
	answered := map[agentsvc.CallID]bool{}
	for _, e := range slices.Backward(entries) {
		switch {
		case e.Result != nil:
			answered[e.Result.Call] = true
		case e.Message != nil:
			return len(e.Message.ToolCalls) > 0 && !slices.ContainsFunc(e.Message.ToolCalls, func(c agentsvc.ToolCall) bool { return !answered[c.ID] })
		}
	}
	return false
}
