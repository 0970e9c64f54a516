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

// turn is one run at work.
type turn struct {
	*Runner
	rec   *task.Recorder
	run   *store.Run
	began time.Time
	// memory is what the conversation takes, as far as it was read and as far as the turn has come.
	memory *capacity.Hold

	entries []agentsvc.Entry            // what the turn adds to its session, the user's message first
	frames  map[string][]agentsvc.Entry // what its sub-agents have said and done, by their paths
	calls   []agentsvc.ToolCall         // all tool calls of the turn
	settled map[agent.CallKey]agent.Settled
	wanted  map[string]int   // how often the credential of each tool was asked for
	wanting map[string]bool  // tools whose credential is asked for at this place of the journal
	asked   []agentsvc.Event // approvals, which wait for the end of the run
	used    agentsvc.Usage
	pending []agentsvc.Event // facts that wait for the next one to be written with
	held    bool             // a result is among them, which waits for the checkpoints behind it
	// recorded says that facts of the run are on the log behind its beginning.
	recorded bool
	ended    bool
	kept     []agentsvc.Entry // what was added to the session
	refused  bool             // the turn ended rejected
	found    findings
	uses     uses
	unsaid   []agentsvc.Event // usage that could not be written with its fact
	last     time.Time        // of the last fact of earlier attempts
	spent    bool             // what was reserved for the run has been settled
}

// load puts together what the agent is to continue: the session, then the turn as far as it has come.
func (t *turn) load(ctx context.Context) (agent.Invocation, error) {
	inv := agent.Invocation{Task: t.run.Task, Turn: t.run.Turn}
	sess, err := t.rec.Session(ctx)
	if err != nil {
		return inv, unrecorded(err)
	}
	if t.run.Message.ID != "" {
		t.entries = []agentsvc.Entry{{Message: &t.run.Message}}
	} else if err := t.replay(ctx); err != nil {
		return inv, unrecorded(err)
	}
	if t.o.Checkpoints.Enabled && (t.run.Attempts <= 1 || !t.recorded) {
		t.pending = append(t.pending, agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AtStart, Step: agent.Steps(t.entries)}})
	}
	// Copies, since the agents read them while the turn goes on.
	inv.Frames, inv.Settled, inv.Asked = maps.Clone(t.frames), maps.Clone(t.settled), maps.Clone(t.wanted)
	inv.Steps, inv.Running = agent.Steps(t.entries), t.rec.Running
	inv.Conversation = agentsvc.Unfold(slices.Concat(sess.Entries, t.entries))
	return inv, nil
}

// replay reads what earlier attempts of the turn recorded, so that it is neither asked nor done again.
func (t *turn) replay(ctx context.Context) error {
	evs, err := t.rec.Journal(ctx)
	if err != nil {
		return err
	}
	for i, ev := range evs {
		t.note(ev)
		t.last = ev.At
		t.recorded = t.recorded || i > 0 && ev.Status == nil
	}
	t.spent = tokens(t.used) > 0
	return nil
}

// note keeps what later facts of the turn need to know of ev.
func (t *turn) note(ev agentsvc.Event) {
	switch {
	case ev.Status != nil && ev.Status.State == agentsvc.Submitted:
		t.add(ev.Frame, agentsvc.Entry{Message: ev.Status.Message})
	case ev.Status != nil:
		t.rested()
	case ev.Approval != nil:
		t.want(*ev.Approval)
	case ev.Message != nil:
		t.add(ev.Frame, agentsvc.Entry{Message: ev.Message})
		for _, c := range ev.Message.ToolCalls {
			c.Thought = "" // what tells of the calls is shown
			t.calls = append(t.calls, c)
		}
	case ev.Call != nil:
		t.begin(ev.Frame, *ev.Call)
	case ev.Decision != nil:
		t.settle(ev.Frame, *ev.Decision)
	case ev.Result != nil:
		t.add(ev.Frame, agentsvc.Entry{Result: ev.Result})
	case ev.Usage != nil:
		t.used = t.used.Add(*ev.Usage)
		t.uses.known(*ev.Usage)
	case ev.Finding != nil:
		t.found.note(*ev.Finding)
	}
}

// gather has the findings that came about written with the next fact.
func (t *turn) gather() {
	for _, ev := range t.found.take() {
		t.note(ev)
		t.pending = append(t.pending, ev)
	}
}

// want keeps that a credential is asked for. Calls that ask for the same one at the same time ask once.
func (t *turn) want(a agentsvc.Approval) {
	if a.Kind != agentsvc.SupplyCredential {
		return
	}
	if t.wanting == nil {
		t.wanting = map[string]bool{}
	}
	t.wanting[a.Credential.Tool] = true
}

// rested keeps that the turn came to rest with what it asked for.
func (t *turn) rested() {
	for name := range t.wanting {
		if t.wanted == nil {
			t.wanted = map[string]int{}
		}
		t.wanted[name]++
	}
	t.wanting = nil
}

// begin keeps that a call is run after a decision, which is thereby used up.
func (t *turn) begin(frame string, c agentsvc.ToolCall) {
	t.keep(agent.CallKey{Frame: frame, Call: c.ID}, agent.Settled{Begun: &c})
}

// settle keeps a decision, or that a credential was supplied, which leaves an earlier decision standing. What an approver
// changed stands in the conversation as if the model had asked for it.
func (t *turn) settle(frame string, d agentsvc.Decision) {
	key := agent.CallKey{Frame: frame, Call: d.Call}
	s := t.settled[key]
	if d.Verdict == agentsvc.Supply {
		s.Supplied = true
	} else {
		s.Decision = &d
	}
	t.keep(key, s)
	if d.Verdict != agentsvc.Approve || d.Arguments == nil {
		return
	}
	amend(t.calls, d)
	entries := t.entries
	if frame != "" {
		entries = t.frames[frame]
	}
	for i, e := range entries {
		if e.Message != nil && slices.ContainsFunc(e.Message.ToolCalls, func(c agentsvc.ToolCall) bool { return c.ID == d.Call }) {
			m := *e.Message
			m.ToolCalls = slices.Clone(m.ToolCalls)
			amend(m.ToolCalls, d)
			entries[i].Message = &m
		}
	}
}

func amend(calls []agentsvc.ToolCall, d agentsvc.Decision) {
	for i := range calls {
		if calls[i].ID == d.Call {
			calls[i].Arguments = d.Arguments
		}
	}
}

func (t *turn) keep(key agent.CallKey, s agent.Settled) {
	if t.settled == nil {
		t.settled = map[agent.CallKey]agent.Settled{}
	}
	t.settled[key] = s
}

// add keeps an entry of the task's own agent for its session, and one of a sub-agent for as long as the turn lasts.
func (t *turn) add(frame string, e agentsvc.Entry) {
	if frame == "" {
		t.entries = append(t.entries, e)
		return
	}
	if t.frames == nil {
		t.frames = map[string][]agentsvc.Entry{}
	}
	t.frames[frame] = append(t.frames[frame], e)
}

// take handles one event of the agent. Usage and checkpoints wait for the fact that follows them, the last result of a round
// of tools for the checkpoints that follow it, where there are any, and what a human is asked for the end of the run;
// everything else is written at once. A tool's result is written even as the run is stopped:
// what the call did is done, and without its result nobody could tell.
func (t *turn) take(ctx context.Context, ev agentsvc.Event) error {
	if ev.Chunk != nil {
		t.rec.Chunk(*ev.Chunk)
		return nil
	}
	if ev.Approval != nil {
		t.asked = append(t.asked, ev)
		return nil
	}
	if ev.Checkpoint != nil {
		return t.checkpoint(ctx, ev)
	}
	t.gather()
	t.note(ev)
	t.pending = append(t.pending, ev)
	if ev.Usage != nil || t.completes(ev) {
		t.held = t.held || ev.Result != nil
		return t.keepInMemory(ctx, ev)
	}
	if ev.Result != nil || t.held {
		var cancel context.CancelFunc
		ctx, cancel = t.rec.Linger(ctx)
		defer cancel()
	}
	rec := store.Record{Events: t.pending}
	switch {
	case ev.Status == nil:
	case ev.Status.State.Interrupted() && len(t.asked) > 0:
		t.pause(&rec)
	default:
		t.end(&rec, ev.Status)
	}
	if err := t.write(ctx, rec); err != nil {
		return err
	}
	return t.keepInMemory(ctx, ev)
}

// keepInMemory answers for the memory of a fact that stays in the conversation until the turn ends.
func (t *turn) keepInMemory(ctx context.Context, ev agentsvc.Event) error {
	if ev.Message == nil && ev.Result == nil {
		return nil
	}
	return t.memory.Add(ctx, ev.Bytes())
}

// end makes rec the last one of the run.
func (t *turn) end(rec *store.Record, st *agentsvc.Status) {
	t.ended = true
	final := t.message("")
	if st.Message != nil {
		final = *st.Message
	}
	said := final
	t.entries = append(t.entries, agentsvc.Entry{Message: &said})
	rec.Session = t.entries
	t.refused = st.State == agentsvc.Rejected
	rec.End = store.Completed
	if st.State.Interrupted() {
		rec.End = store.InputRequired
	}
	final.ToolCalls = t.calls
	final.Metadata = t.metadata()
	rec.Events[len(rec.Events)-1].Status = &agentsvc.Status{State: st.State, Message: &final}
}

// pause makes rec the last one of the run and has the turn go on when there is an answer to everything that was asked.
// Until then the session knows nothing of it.
func (t *turn) pause(rec *store.Record) {
	t.ended = true
	approvals := make([]agentsvc.Approval, len(t.asked))
	for i, ev := range t.asked {
		approvals[i] = *ev.Approval
		approvals[i].Frame = ev.Frame
	}
	question := task.Question(t.run.Task, approvals)
	question.Metadata = t.metadata()
	last := agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Waiting(approvals), Message: &question}}
	rec.Events = slices.Concat(rec.Events[:len(rec.Events)-1], t.asked, []agentsvc.Event{last})
	rec.End = store.InputRequired
}

func (t *turn) write(ctx context.Context, rec store.Record) error {
	t.pending, t.held, t.recorded = nil, false, true
	if err := t.rec.Record(ctx, rec); err != nil {
		if err = unrecorded(err); !errors.Is(err, errNotRecorded) {
			t.pending = facts(rec.Events)
			if full := (*agentsvc.StoredError)(nil); errors.As(err, &full) {
				t.pending = usageOf(rec.Events) // the others are what there is no room for
			}
			return err
		}
		t.unsaid = append(t.unsaid, usageOf(rec.Events)...)
		return err
	}
	t.kept = rec.Session
	t.count(ctx, rec)
	if rec.End != "" && t.o.Ended != nil {
		var state agentsvc.State
		if last := rec.Events; len(last) > 0 && last[len(last)-1].Status != nil {
			state = last[len(last)-1].Status.State
		}
		t.o.Ended(ctx, *t.run, state, time.Since(t.began))
	}
	return nil
}

// facts are those of evs that hold whatever the turn comes to: all but its end.
func facts(evs []agentsvc.Event) []agentsvc.Event {
	return slices.DeleteFunc(slices.Clone(evs), func(ev agentsvc.Event) bool { return ev.Status != nil })
}

func (t *turn) message(text string) agentsvc.Message {
	return agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: t.run.Task, Role: agentsvc.RoleAgent,
		Parts: []agentsvc.Part{agentsvc.TextPart(text)}, Metadata: t.metadata(),
	}
}

// metadata is what the last message of a turn tells about it: the tokens of all its model calls, the model, what
// guardrails found, and the seconds the last attempt took.
func (t *turn) metadata() map[string]any {
	u := t.used
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
	if list := t.found.metadata(); len(list) > 0 {
		m["guardrails"] = list
	}
	return m
}
