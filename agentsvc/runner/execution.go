package runner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// execution is one run at work.
type execution struct {
	*Runner
	recorder *task.Recorder
	run      *store.Run
	began    time.Time
	// memory is what the conversation takes, as far as it was read and as far as the turn has come.
	memory *capacity.Reservation

	entries                []agentsvc.Entry            // what the turn adds to its session, the user's message first
	frames                 map[string][]agentsvc.Entry // what its sub-agents have said and done, by their paths
	calls                  []agentsvc.ToolCall         // all tool calls of the turn
	callStates             map[agent.CallKey]agent.CallState
	credentialRequests     map[string]int   // how often the credential of each tool was asked for
	openCredentialRequests map[string]bool  // tools whose credential is asked for at this place of the journal
	approvals              []agentsvc.Event // approvals, which wait for the end of the run
	usage                  agentsvc.Usage
	pending                []agentsvc.Event // facts that wait for the next one to be written with
	resultPending          bool             // a result is among them, which waits for the checkpoints behind it
	// recorded says that facts of the run are on the log behind its beginning.
	recorded        bool
	ended           bool
	sessionEntries  []agentsvc.Entry // what was added to the session
	rejected        bool             // the turn ended rejected
	findings        findings
	unreportedUsage usageTracker
	unwrittenUsage  []agentsvc.Event // usage that could not be written with its fact
	lastFactAt      time.Time        // of the last fact of earlier attempts
	usageReported   bool             // what was reserved for the run has been settled
}

// loadInvocation puts together what the agent is to continue: the session, then the turn as far as it has come.
func (t *execution) loadInvocation(ctx context.Context) (agent.Invocation, error) {
	inv := agent.Invocation{Task: t.run.Task, Turn: t.run.Turn}
	sess, err := t.recorder.ReadSession(ctx)
	if err != nil {
		return inv, classifyLogError(err)
	}
	if t.run.Message.ID != "" {
		t.entries = []agentsvc.Entry{{Message: &t.run.Message}}
	} else if err := t.replayJournal(ctx); err != nil {
		return inv, classifyLogError(err)
	}
	if t.options.Checkpoints.Enabled && (t.run.Attempts <= 1 || !t.recorded) {
		t.pending = append(t.pending, agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AtStart, Step: agent.CountSteps(t.entries)}})
	}
	// Copies, since the agents read them while the turn goes on.
	inv.Frames, inv.CallStates, inv.CredentialRequests = maps.Clone(t.frames), maps.Clone(t.callStates), maps.Clone(t.credentialRequests)
	inv.Steps, inv.RegisterCall = agent.CountSteps(t.entries), t.recorder.RegisterCall
	inv.Conversation = agentsvc.ExpandPriorMessages(slices.Concat(sess.Entries, t.entries))
	return inv, nil
}

// replayJournal reads what earlier attempts of the turn recorded, so that it is neither asked nor done again.
func (t *execution) replayJournal(ctx context.Context) error {
	evs, err := t.recorder.ReadJournal(ctx)
	if err != nil {
		return err
	}
	for i, ev := range evs {
		t.applyEvent(ev)
		t.lastFactAt = ev.At
		t.recorded = t.recorded || i > 0 && ev.Status == nil
	}
	t.usageReported = countTokens(t.usage) > 0
	return nil
}

// applyEvent keeps what later facts of the turn need to know of ev.
func (t *execution) applyEvent(ev agentsvc.Event) {
	switch {
	case ev.Status != nil && ev.Status.State == agentsvc.Submitted:
		t.addEntry(ev.Frame, agentsvc.Entry{Message: ev.Status.Message})
	case ev.Status != nil:
		t.countCredentialRequests()
	case ev.Approval != nil:
		t.addCredentialRequest(*ev.Approval)
	case ev.Message != nil:
		t.addEntry(ev.Frame, agentsvc.Entry{Message: ev.Message})
		for _, c := range ev.Message.ToolCalls {
			c.Thought = "" // what tells of the calls is shown
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
		t.unreportedUsage.removeReported(*ev.Usage)
	case ev.Finding != nil:
		t.findings.markRecorded(*ev.Finding)
	}
}

// gatherFindings has the findings that came about written with the next fact.
func (t *execution) gatherFindings() {
	for _, ev := range t.findings.drainEvents() {
		t.applyEvent(ev)
		t.pending = append(t.pending, ev)
	}
}

// addCredentialRequest keeps that a credential is asked for. Calls that ask for the same one at the same time ask once.
func (t *execution) addCredentialRequest(a agentsvc.Approval) {
	if a.Kind != agentsvc.SupplyCredential {
		return
	}
	if t.openCredentialRequests == nil {
		t.openCredentialRequests = map[string]bool{}
	}
	t.openCredentialRequests[a.Credential.Tool] = true
}

// countCredentialRequests keeps that the turn came to rest with what it asked for.
func (t *execution) countCredentialRequests() {
	for name := range t.openCredentialRequests {
		if t.credentialRequests == nil {
			t.credentialRequests = map[string]int{}
		}
		t.credentialRequests[name]++
	}
	t.openCredentialRequests = nil
}

// markCallBegun keeps that a call is run after a decision, which is thereby used up.
func (t *execution) markCallBegun(frame string, c agentsvc.ToolCall) {
	t.setCallState(agent.CallKey{Frame: frame, Call: c.ID}, agent.CallState{Begun: &c})
}

// applyDecision keeps a decision, or that a credential was supplied, which leaves an earlier decision standing. What an approver
// changed stands in the conversation as if the model had asked for it.
func (t *execution) applyDecision(frame string, d agentsvc.Decision) {
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
			m := *e.Message
			m.ToolCalls = slices.Clone(m.ToolCalls)
			amendArguments(m.ToolCalls, d)
			entries[i].Message = &m
		}
	}
}

func amendArguments(calls []agentsvc.ToolCall, d agentsvc.Decision) {
	for i := range calls {
		if calls[i].ID == d.Call {
			calls[i].Arguments = d.Arguments
		}
	}
}

func (t *execution) setCallState(key agent.CallKey, s agent.CallState) {
	if t.callStates == nil {
		t.callStates = map[agent.CallKey]agent.CallState{}
	}
	t.callStates[key] = s
}

// addEntry keeps an entry of the task's own agent for its session, and one of a sub-agent for as long as the turn lasts.
func (t *execution) addEntry(frame string, e agentsvc.Entry) {
	if frame == "" {
		t.entries = append(t.entries, e)
		return
	}
	if t.frames == nil {
		t.frames = map[string][]agentsvc.Entry{}
	}
	t.frames[frame] = append(t.frames[frame], e)
}

// processEvent handles one event of the agent. Usage and checkpoints wait for the fact that follows them, the last result of a round
// of tools for the checkpoints that follow it, where there are any, and what a human is asked for the end of the run;
// everything else is written at once. A tool's result is written even as the run is stopped:
// what the call did is done, and without its result nobody could tell.
func (t *execution) processEvent(ctx context.Context, ev agentsvc.Event) error {
	if ev.Chunk != nil {
		t.recorder.PublishChunk(*ev.Chunk)
		return nil
	}
	if ev.Approval != nil {
		t.approvals = append(t.approvals, ev)
		return nil
	}
	if ev.Checkpoint != nil {
		return t.addCheckpoint(ctx, ev)
	}
	t.gatherFindings()
	t.applyEvent(ev)
	t.pending = append(t.pending, ev)
	if ev.Usage != nil || t.completesToolRound(ev) {
		t.resultPending = t.resultPending || ev.Result != nil
		return t.reserveMemory(ctx, ev)
	}
	if ev.Result != nil || t.resultPending {
		var cancel context.CancelFunc
		ctx, cancel = t.recorder.WithStopGrace(ctx)
		defer cancel()
	}
	rec := store.Record{Events: t.pending}
	switch {
	case ev.Status == nil:
	case ev.Status.State.IsInterrupted() && len(t.approvals) > 0:
		t.pauseRun(&rec)
	default:
		t.endRun(&rec, ev.Status)
	}
	if err := t.writeRecord(ctx, rec); err != nil {
		return err
	}
	return t.reserveMemory(ctx, ev)
}

// reserveMemory answers for the memory of a fact that stays in the conversation until the turn ends.
func (t *execution) reserveMemory(ctx context.Context, ev agentsvc.Event) error {
	if ev.Message == nil && ev.Result == nil {
		return nil
	}
	return t.memory.ReserveBytes(ctx, ev.ByteSize())
}

// endRun makes rec the last one of the run.
func (t *execution) endRun(rec *store.Record, st *agentsvc.Status) {
	t.ended = true
	final := t.newMessage("")
	if st.Message != nil {
		final = *st.Message
	}
	message := final
	t.entries = append(t.entries, agentsvc.Entry{Message: &message})
	rec.SessionEntries = t.entries
	t.rejected = st.State == agentsvc.Rejected
	rec.EndState = store.Completed
	if st.State.IsInterrupted() {
		rec.EndState = store.InputRequired
	}
	final.ToolCalls = t.calls
	final.Metadata = t.newMetadata()
	rec.Events[len(rec.Events)-1].Status = &agentsvc.Status{State: st.State, Message: &final}
}

// pauseRun makes rec the last one of the run and has the turn go on when there is an answer to everything that was asked.
// Until then the session knows nothing of it.
func (t *execution) pauseRun(rec *store.Record) {
	t.ended = true
	approvals := make([]agentsvc.Approval, len(t.approvals))
	for i, ev := range t.approvals {
		approvals[i] = *ev.Approval
		approvals[i].Frame = ev.Frame
	}
	question := task.NewQuestion(t.run.Task, approvals)
	question.Metadata = t.newMetadata()
	last := agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.WaitingState(approvals), Message: &question}}
	rec.Events = slices.Concat(rec.Events[:len(rec.Events)-1], t.approvals, []agentsvc.Event{last})
	rec.EndState = store.InputRequired
}

func (t *execution) writeRecord(ctx context.Context, rec store.Record) error {
	t.pending, t.resultPending, t.recorded = nil, false, true
	if err := t.recorder.RecordFacts(ctx, rec); err != nil {
		if err = classifyLogError(err); !errors.Is(err, errNotRecorded) {
			t.pending = withoutStatus(rec.Events)
			if full := (*agentsvc.StorageLimitError)(nil); errors.As(err, &full) {
				t.pending = filterUsage(rec.Events) // the others are what there is no room for
			}
			return err
		}
		t.unwrittenUsage = append(t.unwrittenUsage, filterUsage(rec.Events)...)
		return err
	}
	t.sessionEntries = rec.SessionEntries
	t.reportUsage(ctx, rec)
	if rec.EndState != "" && t.options.OnAttemptEnd != nil {
		var state agentsvc.State
		if last := rec.Events; len(last) > 0 && last[len(last)-1].Status != nil {
			state = last[len(last)-1].Status.State
		}
		t.options.OnAttemptEnd(ctx, *t.run, state, time.Since(t.began))
	}
	return nil
}

// withoutStatus are those of evs that hold whatever the turn comes to: all but its end.
func withoutStatus(evs []agentsvc.Event) []agentsvc.Event {
	return slices.DeleteFunc(slices.Clone(evs), func(ev agentsvc.Event) bool { return ev.Status != nil })
}

func (t *execution) newMessage(text string) agentsvc.Message {
	return agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: t.run.Task, Role: agentsvc.RoleAgent,
		Parts: []agentsvc.Part{agentsvc.TextPart(text)}, Metadata: t.newMetadata(),
	}
}

// newMetadata is what the last message of a turn tells about it: the tokens of all its model calls, the model, what
// guardrails found, and the seconds the last attempt took.
func (t *execution) newMetadata() map[string]any {
	u := t.usage
	m := map[string]any{
		"tokens_used": map[string]any{
			"input": float64(u.InputTokens), "output": float64(u.OutputTokens), "cache_read": float64(u.CacheReadTokens),
			"cache_write": float64(u.CacheWriteTokens), "reasoning": float64(u.ReasoningTokens), "total": float64(u.InputTokens + u.OutputTokens),
		},
		"execution_time": time.Since(t.began).Seconds(),
	}
	if u.Model != "" {
		m["model"] = u.Model
	}
	if list := t.findings.toMetadata(); len(list) > 0 {
		m["guardrails"] = list
	}
	return m
}
