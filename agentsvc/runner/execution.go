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

// execution is the state of one run in progress. It belongs to the goroutine of [Runner.Run]; only the turn's findings
// and the usage tracker, which have their own locks, are also written by other goroutines (model calls and guardrails).
type execution struct {
	*Runner
	recorder *task.Recorder
	// run is advanced by the recorder: Epoch and Seq are those of the last committed fact.
	run *store.Run
	// began is the start of this attempt, for execution_time and OnAttemptEnd.
	began time.Time
	// memory reserves the bytes of the conversation as it was read and of the facts that this attempt adds to it.
	memory *capacity.MemoryReservation

	turn turnState
	// modelCalls is the number of model calls that the turn's agents were about to make in this attempt.
	modelCalls int
	// usage reports what the run uses of its models.
	usage usageReport
	// pending are facts that are written together with the next record: usage, findings, checkpoints, and the last
	// result of a tool round where checkpoints follow it.
	pending []agentsvc.Event
	// resultPending reports that pending holds a tool result. It must reach the log even if the run is stopped.
	resultPending bool
	// recorded reports that the log holds facts of this turn beyond its opening events, from this attempt or an
	// earlier one.
	recorded bool
	// ended reports that the run's last record was built; the agent's loop stops there.
	ended bool
	// sessionEntries are the entries that the last successful record added to the session, for the session observer.
	sessionEntries []agentsvc.Entry
	// rejected reports that the turn ended in state rejected.
	rejected bool
	// lastFactAt is the time of the last fact of earlier attempts; zero for a first attempt. RecoveryPolicy.MaxAge
	// uses it.
	lastFactAt time.Time
}

// loadInvocation builds the agent's input: the session's entries, then the turn as far as earlier attempts recorded
// it. A run that was accepted in a slot carries its message (Message.ID is set) and has nothing to replay. What humans
// decided since the last attempt is in CallStates, where the agent finds it (toolCalls.resumeCalls of package agent).
func (exe *execution) loadInvocation(ctx context.Context) (agent.Invocation, error) {
	inv := agent.Invocation{Task: exe.run.Task, Turn: exe.run.Turn}
	sess, err := exe.recorder.ReadSession(ctx)
	if err != nil {
		return inv, classifyLogError(err)
	}
	if exe.run.Message.ID != "" {
		exe.turn.entries = []agentsvc.Entry{{Message: &exe.run.Message}}
	} else if err := exe.replayJournal(ctx); err != nil {
		return inv, classifyLogError(err)
	}
	exe.turn.sources.continueNumbers(sess.Entries)
	// A retry that continues recorded work has its start checkpoint on the log already.
	if exe.options.Checkpoints.Enabled && (exe.run.Attempts <= 1 || !exe.recorded) {
		exe.pending = append(exe.pending, agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AtStart, Step: agent.CountSteps(exe.turn.entries)}})
	}
	// Copies: the agent may read these maps while processEvent changes the originals.
	inv.Frames, inv.CallStates, inv.CredentialRequests = maps.Clone(exe.turn.frames), maps.Clone(exe.turn.callStates), maps.Clone(exe.turn.credentialRequests)
	inv.Steps, inv.RegisterCall = agent.CountSteps(exe.turn.entries), exe.recorder.RegisterCall
	inv.Conversation = agentsvc.ExpandPriorMessages(slices.Concat(sess.Entries, exe.turn.entries))
	return inv, nil
}

// replayJournal applies the facts that earlier attempts of the turn recorded, so that neither models nor tools are
// called again for them. The journal of a resumed turn begins with the turn that paused (FirstSeq is inherited), so a
// decision continues where the agent stopped.
func (exe *execution) replayJournal(ctx context.Context) error {
	evs, err := exe.recorder.ReadJournal(ctx)
	if err != nil {
		return err
	}
	for i, ev := range evs {
		if ev.Attempt != nil {
			continue // it is about this run, and no work of the turn
		}
		exe.applyEvent(ev)
		exe.lastFactAt = ev.At
		exe.recorded = exe.recorded || i > 0 && ev.Status == nil
	}
	// Tokens on the log mean that an earlier attempt reported usage, which settled the turn's reservation from the
	// token limits.
	exe.usage.limitSettled = countTokens(exe.turn.usage) > 0
	return nil
}

// applyEvent updates the state of the run by one fact, replayed or new.
func (exe *execution) applyEvent(ev agentsvc.Event) {
	exe.turn.applyEvent(ev)
	if ev.Usage != nil {
		exe.usage.tracker.removeReported(*ev.Usage)
	}
}

// gatherReports moves what guardrails found and what passages were numbered since the last fact into pending, to be
// written with the next fact.
func (exe *execution) gatherReports() {
	for _, ev := range append(exe.turn.findings.drainEvents(), exe.turn.sources.drainEvents()...) {
		exe.applyEvent(ev)
		exe.pending = append(exe.pending, ev)
	}
}

// processEvent handles one event of the agent:
//
//   - a chunk is published and stored nowhere;
//   - an approval waits for the status that pauses the run, since both are one transaction;
//   - usage and checkpoints wait for the next fact, so that they cost no commit of their own;
//   - the last result of a tool round waits for the checkpoints behind it, where any are written;
//   - every other fact is committed before the agent continues.
//
// A tool result is written even while the run is being stopped: the call had its effect, and without the result the
// next attempt would have to treat its outcome as unknown.
func (exe *execution) processEvent(ctx context.Context, ev agentsvc.Event) error {
	if ev.Chunk != nil {
		exe.recorder.PublishChunk(*ev.Chunk)
		return nil
	}
	if ev.Approval != nil {
		exe.turn.approvals = append(exe.turn.approvals, ev)
		return nil
	}
	if ev.Checkpoint != nil {
		return exe.addCheckpoint(ctx, ev)
	}
	exe.gatherReports()
	exe.applyEvent(ev)
	exe.pending = append(exe.pending, ev)
	if ev.Usage != nil || exe.options.Checkpoints.hasStepCheckpoints() && exe.turn.completesToolRound(ev) {
		exe.resultPending = exe.resultPending || ev.Result != nil
		return exe.reserveMemory(ctx, ev)
	}
	if ev.Result != nil || exe.resultPending {
		var cancel context.CancelFunc
		ctx, cancel = exe.recorder.WithStopGrace(ctx)
		defer cancel()
	}
	rec := store.Record{Events: exe.pending}
	switch {
	case ev.Status == nil:
	case ev.Status.State.IsInterrupted() && len(exe.turn.approvals) > 0:
		exe.pauseRun(&rec)
	default:
		exe.endRun(&rec, ev.Status)
	}
	if err := exe.writeRecord(ctx, rec); err != nil {
		return err
	}
	return exe.reserveMemory(ctx, ev)
}

// reserveMemory reserves the bytes of a fact that stays in the conversation until the turn ends.
func (exe *execution) reserveMemory(ctx context.Context, ev agentsvc.Event) error {
	if ev.Message == nil && ev.Result == nil {
		return nil
	}
	return exe.memory.ReserveBytes(ctx, ev.ByteSize())
}

// endRun makes rec the last record of the run: it adds the session entries, sets the end state and completes the
// final message with the turn's tool calls and metadata. input_required without an open approval (the agent asked the
// user a question) ends the turn too: its session entries are written, and the user's answer is a new turn.
func (exe *execution) endRun(rec *store.Record, st *agentsvc.Status) {
	exe.ended = true
	final := exe.newMessage("")
	if st.Message != nil {
		final = *st.Message
	}
	message := final
	exe.turn.entries = append(exe.turn.entries, agentsvc.Entry{Message: &message})
	rec.SessionEntries = exe.turn.entries
	exe.rejected = st.State == agentsvc.Rejected
	rec.EndState = store.Completed
	if st.State.IsInterrupted() {
		rec.EndState = store.InputRequired
	}
	// After the copy above: the session keeps the plain message, the status carries calls and metadata.
	final.ToolCalls = exe.turn.calls
	final.Metadata = exe.newMetadata()
	if list := exe.turn.newCitations(final); len(list) > 0 && !exe.rejected {
		final.Metadata[agentsvc.CitationsKey] = list
	}
	rec.Events[len(rec.Events)-1].Status = &agentsvc.Status{State: st.State, Message: &final}
}

// pauseRun makes rec the last record of a run that waits for approvals. The session gets no entries yet; the turn's
// facts stay on the log. When every approval is decided, task.Decisions creates a run with the same FirstSeq, which
// replays them.
func (exe *execution) pauseRun(rec *store.Record) {
	exe.ended = true
	approvals := make([]agentsvc.Approval, len(exe.turn.approvals))
	for i, ev := range exe.turn.approvals {
		approvals[i] = *ev.Approval
		approvals[i].Frame = ev.Frame
	}
	question := task.NewQuestion(exe.run.Task, approvals)
	question.Metadata = exe.newMetadata()
	last := agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.WaitingState(approvals), Message: &question}}
	rec.Events = slices.Concat(rec.Events[:len(rec.Events)-1], exe.turn.approvals, []agentsvc.Event{last})
	rec.EndState = store.InputRequired
}

// writeRecord commits rec and reports its usage. Where the log refused the record but would accept the run's end
// (classifyLogError), the facts return to pending without their status, so that recordFailure writes them with the
// failure. Where the storage quota is exhausted only usage returns: the rest is what there is no storage for.
func (exe *execution) writeRecord(ctx context.Context, rec store.Record) error {
	exe.pending, exe.resultPending, exe.recorded = nil, false, true
	if err := exe.recorder.RecordFacts(ctx, rec); err != nil {
		if err = classifyLogError(err); !errors.Is(err, errNotRecorded) {
			exe.pending = withoutStatus(rec.Events)
			if errors.Is(err, agentsvc.CodeExhausted) {
				exe.pending = filterUsage(rec.Events)
			}
			return err
		}
		exe.usage.unwritten = append(exe.usage.unwritten, filterUsage(rec.Events)...)
		return err
	}
	exe.sessionEntries = rec.SessionEntries
	exe.usage.reportRecord(ctx, *exe.run, rec, exe.turn.usage)
	if rec.EndState != "" && exe.options.OnAttemptEnd != nil {
		var state agentsvc.State
		if last := rec.Events; len(last) > 0 && last[len(last)-1].Status != nil {
			state = last[len(last)-1].Status.State
		}
		exe.options.OnAttemptEnd(ctx, *exe.run, state, time.Since(exe.began))
	}
	return nil
}

// withoutStatus returns the events that remain true whatever end the turn gets: all but status events.
func withoutStatus(evs []agentsvc.Event) []agentsvc.Event {
	return slices.DeleteFunc(slices.Clone(evs), func(ev agentsvc.Event) bool { return ev.Status != nil })
}

// newMessage returns a message of the agent with one text part, an id and the turn's metadata.
func (exe *execution) newMessage(text string) agentsvc.Message {
	return agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: exe.run.Task, Role: agentsvc.RoleAgent,
		Parts: []agentsvc.Part{agentsvc.TextPart(text)}, Metadata: exe.newMetadata(),
	}
}

// newMetadata returns the metadata of a turn's last message: tokens_used (sum over all model calls of the turn,
// numbers as float64, as JSON decodes them), model, guardrails (findings) and execution_time (seconds of the last
// attempt). endRun adds citations.
func (exe *execution) newMetadata() map[string]any {
	u := exe.turn.usage
	m := map[string]any{
		"tokens_used": map[string]any{
			"input": float64(u.InputTokens), "output": float64(u.OutputTokens), "cache_read": float64(u.CacheReadTokens),
			"cache_write": float64(u.CacheWriteTokens), "reasoning": float64(u.ReasoningTokens), "total": float64(u.InputTokens + u.OutputTokens),
		},
		"execution_time": time.Since(exe.began).Seconds(),
	}
	if u.Model != "" {
		m["model"] = u.Model
	}
	if list := exe.turn.findings.toMetadata(); len(list) > 0 {
		m["guardrails"] = list
	}
	return m
}
