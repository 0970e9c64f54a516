package task

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/trail"
)

// Submission is a message for an agent, as a protocol decoded it.
type Submission struct {
	// Agent is the one that the request addresses, Owner the authenticated user; neither is taken from the message.
	Agent string
	Owner agentsvc.Owner
	// Message.Task names the task that the message continues, if any. A Message.ID that the client chose makes a
	// repeated send harmless: it finds the task of the first one.
	Message agentsvc.Message
	// Key is an idempotency key. It takes precedence over Message.ID; another message under the same key is refused
	// with [ErrKeyReused].
	Key string
	// Awaited reports that the caller waits for the answer: the turn starts in this process at once if a slot is
	// free.
	Awaited bool
	// Background gives the turn the lowest priority: no human has sent it.
	Background bool
	// Decisions are what [ParseDecisions] found in the message. If there are any, the message opens no turn by its
	// text. Decisions about calls may concern any user's task, so the caller must have checked the sender's
	// permission; credentials only the sender's own task.
	Decisions []DecisionInput
	// Reservation is what admission reserved from the tenant's limits for this message; nil = nothing.
	Reservation *Reservation
	// Receiver is a push notification receiver to register with the turn; nil = none.
	Receiver *receiver.Receiver
}

// Reservation is what admission reserved from a tenant's limits for a message. The note is stored with the run; the
// run's first usage report, or a cancellation before it, settles the reservation by this note.
type Reservation struct {
	Note string // identifies the reservation for the code that settles it
	// Recorded reports that a run was written with the note. If it is false when the submission returns, the caller
	// must release the reservation itself.
	Recorded bool
}

// runPriority returns the priority of the turn's run.
func (sub Submission) runPriority() store.Priority {
	switch {
	case sub.Awaited:
		return store.PriorityAwaited
	case sub.Background:
		return store.PriorityBackground
	}
	return store.PriorityNormal
}

// taskVisibility returns which tasks the submission may continue: the sender's own tasks of the agent, or, for
// decisions about calls, any task of the agent.
func (sub Submission) taskVisibility() Visibility {
	if len(sub.Decisions) > 0 && !HasCredentials(sub.Decisions) {
		return Visibility{Agents: []string{sub.Agent}}
	}
	return Visibility{[]string{sub.Agent}, &sub.Owner}
}

// ErrConflict reports that a message with the same id and another body was accepted before.
var ErrConflict = errors.New("a message with this id and another body was sent before")

// ErrKeyReused reports that another message was accepted under the same idempotency key.
var ErrKeyReused = errors.New("another message came under this key before; take a new Idempotency-Key, or over MCP a new id of the call")

// Submit accepts a message as a new turn of a task, or opens a task if the message names none. When Submit returns,
// the turn is committed and survives a crash. It returns
//
//   - [agentsvc.ErrNotFound] for a task that does not exist or is not visible,
//   - [agentsvc.ErrTaskEnded] and [agentsvc.ErrTaskBusy] for one that has ended or executes,
//   - [agentsvc.ErrAwaitingDecision], [agentsvc.ErrAwaitingCredential] and [agentsvc.ErrAwaitingBudget] for one that
//     waits for something else than a message,
//   - [agentsvc.ErrSessionBusy] where the agent's OnBusy policy refuses the message,
//   - [ErrConflict] and [ErrKeyReused] for a repeated id or key with another content,
//   - for a message with decisions or credentials what [Service.Decide] returns.
func (s *Service) Submit(ctx context.Context, sub Submission) (agentsvc.Task, error) {
	acc, err := s.acceptMessage(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	s.dispatchTurn(acc)
	return acc.task, nil
}

// SubmitAndFollow is Submit for a caller who waits. It also returns the turn's events, from the first one. They end
// with the task's end or with ctx; the caller stops iterating when it has seen enough. If ctx ends before the turn
// has ended or paused, the run continues as one whose caller has disconnected ([Executor].DetachCaller).
func (s *Service) SubmitAndFollow(ctx context.Context, sub Submission) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	sub.Awaited = true
	acc, err := s.acceptMessage(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	if acc.events == nil { // a repeated message: its events are on the log
		return acc.task, s.followLog(ctx, acc.task.ID, acc.beforeSeq), nil
	}
	// Subscribe before the run is dispatched, so that none of its events can be missed without reading the log.
	r := s.hub.subscribe(s.newTopicKey(acc.task.ID), acc.task.Seq)
	if !acc.hasSlot {
		r.followRemote()
	}
	s.dispatchTurn(acc)
	r.endIfTenantEnded(ctx)
	var over atomic.Bool // set when the caller has seen the turn's end or pause
	context.AfterFunc(ctx, func() {
		r.close()
		if !over.Load() {
			s.executor.DetachCaller(s.tenant, acc.task.ID)
		}
	})
	return acc.task, func(yield func(agentsvc.Event, error) bool) {
		defer r.close()
		see := func(ev agentsvc.Event, err error) bool {
			if isSettled(ev) {
				over.Store(true)
			}
			return yield(ev, err)
		}
		for _, ev := range acc.events {
			if !see(ev, nil) || isTerminal(ev) {
				return
			}
		}
		s.streamEvents(ctx, r, acc.task.ID, acc.task.Seq, false, see)
	}, nil
}

// acceptedTurn is the result of accepting a message or decision: the turn is committed and its run waits to be
// dispatched. The stages of acceptance fill it in.
type acceptedTurn struct {
	// task is the task after the turn's first events.
	task agentsvc.Task
	// events are those written with the turn; nil where a repeated message found an earlier turn, so that there is
	// nothing to start.
	events []agentsvc.Event
	// beforeSeq is the sequence before the first event of that earlier turn; set only where events is nil.
	beforeSeq int64
	run       store.Run
	// hasSlot reports that a slot of this process is reserved for run.
	hasSlot bool
	// confirmWritten, if not nil, must be called with whether the run was written: it settles the reserved queue
	// entry.
	confirmWritten func(bool)
}

// dispatchTurn starts the committed turn's run: in its reserved slot, or by notifying the queue. For a repeated
// message it does nothing.
func (s *Service) dispatchTurn(acc acceptedTurn) {
	switch {
	case acc.hasSlot:
		s.executor.StartRun(acc.run)
	case acc.events != nil:
		s.executor.NotifyQueued(acc.run)
	}
}

// acceptMessage validates the message and writes its turn. An awaited message is first tried with a slot of this
// process; where no slot is free, or the tenant's limit of executing runs is reached, it is written for the queue.
func (s *Service) acceptMessage(ctx context.Context, sub Submission) (acc acceptedTurn, err error) {
	ctx, span := trail.StartSpan(ctx, "submit")
	defer func() {
		if span.IsRecording() {
			span.SetAttributes(trail.TaskKey.String(string(acc.task.ID)))
		}
		trail.EndSpan(span, err)
	}()
	if len(sub.Message.Parts) == 0 {
		return acceptedTurn{}, agentsvc.NewInvalidError("message.parts", "a message needs at least one part")
	}
	if err := errors.Join(checkID("message.message_id", string(sub.Message.ID)), checkID("message.context_id", string(sub.Message.Context))); err != nil {
		return acceptedTurn{}, err
	}
	if sub.Awaited {
		if acc, err = s.writeTurn(ctx, sub, true); !errors.Is(err, store.ErrTooManyRunning) {
			return acc, err
		}
	}
	return s.writeTurn(ctx, sub, false)
}

// writeTurn writes the turn of a message, with a reserved slot of this process (here) or for the queue. It returns
// [store.ErrTooManyRunning] where here is set and no slot is free or the tenant's limit is reached. On every failure
// it releases the slot and the queue entry that it reserved.
func (s *Service) writeTurn(ctx context.Context, sub Submission, here bool) (acc acceptedTurn, err error) {
	req := runRequest{priority: sub.runPriority(), trace: trail.TraceParent(ctx)}
	if here {
		if req.worker, acc.hasSlot = s.executor.AcquireSlot(s.tenant); !acc.hasSlot {
			return acc, store.ErrTooManyRunning
		}
	}
	acc.run = s.newTurnFactory().newRun(req)
	if !here && len(sub.Decisions) == 0 {
		if acc.confirmWritten, err = s.reserveQueueDepth(ctx); err != nil {
			return acceptedTurn{}, err
		}
	}
	defer func() {
		if acc.confirmWritten != nil {
			acc.confirmWritten(err == nil && acc.events != nil)
		}
	}()
	switch {
	case len(sub.Decisions) > 0:
		err = s.decideByMessage(ctx, sub, &acc)
	case sub.Message.Task == "":
		err = s.openTask(ctx, sub, &acc)
	default:
		err = s.resumeWithInput(ctx, sub, &acc)
	}
	// The run that continues after decisions is not admitted again, so it stores no note.
	if sub.Reservation != nil && err == nil && acc.events != nil && len(sub.Decisions) == 0 {
		sub.Reservation.Recorded = true
	}
	if acc.hasSlot && (err != nil || acc.events == nil) {
		s.executor.ReleaseSlot(s.tenant)
		acc.hasSlot = false
	}
	return acc, err
}

// reserveQueueDepth reserves an entry of the tenant's queue for a run that is about to be written.
func (s *Service) reserveQueueDepth(ctx context.Context) (done func(written bool), err error) {
	if s.options.MaxQueueDepth == 0 {
		return func(bool) {}, nil
	}
	return s.executor.ReserveQueueDepth(ctx, s.tenant, s.options.MaxQueueDepth)
}

// openTask opens a new task. If the task's session is occupied by another run, the agent's OnBusy policy decides;
// unless it refuses, the write is tried again, because other messages may join or leave the session in between.
func (s *Service) openTask(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	sent := newSent(sub)
	// A new context cannot be occupied, and a run with a slot must not wait.
	acc.run.MayWait = !acc.hasSlot && sub.Message.Context != "" && s.busyPolicy(sub.Agent) == Queue
	for range maxQueueAttempts {
		err := s.createTask(ctx, sub, sent, acc)
		// A write into an existing session fails in the same way for "occupied" and for "sent before", so both are
		// looked up.
		occupied := errors.Is(err, agentsvc.ErrSessionBusy)
		if !occupied && !errors.Is(err, store.ErrAlreadySent) {
			return err
		}
		acc.events = nil
		if sent != nil {
			acc.task, err = s.findSentTask(ctx, sub, *sent)
			if !occupied || !errors.Is(err, agentsvc.ErrNotFound) {
				return err
			}
		}
		if err := s.resolveOccupied(ctx, sub, acc); err != nil {
			return err
		}
	}
	return agentsvc.ErrSessionBusy
}

// createTask writes the task with its first events, its run and the record of the sent message. A run with a slot is
// written as working (two events), a queued one as submitted.
func (s *Service) createTask(ctx context.Context, sub Submission, sent *store.SentMessage, acc *acceptedTurn) error {
	s.setRunMessage(sub, acc)
	run := &acc.run
	s.newTurnFactory().setNewTask(run, sub.Agent, sub.Owner, sub.Message.Context)
	run.Message.Task, run.Message.Context = run.Task, ""
	acc.events = []agentsvc.Event{stampEvent(run.Task, 1, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &run.Message}})}
	if acc.hasSlot {
		acc.events = append(acc.events, stampEvent(run.Task, 2, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Working}}))
	}
	run.Seq = int64(len(acc.events))
	acc.task = agentsvc.Task{ID: run.Task, Context: run.Context, Agent: run.Agent, Owner: run.Owner, Created: acc.events[0].At}
	for _, ev := range acc.events {
		acc.task.ApplyEvent(ev)
	}
	return s.store.Tasks.Create(ctx, *run, acc.events, sent, s.newRunReceiverEntries(*run)...)
}

// newConflictError returns the error for a message whose key, or else id, belongs to another message.
func (sub *Submission) newConflictError() error {
	if sub.Key != "" {
		return ErrKeyReused
	}
	return ErrConflict
}

// findSentTask returns the task that the same message opened before. It returns [agentsvc.ErrNotFound] if it was not
// sent before, and [ErrConflict] or [ErrKeyReused] if the content differs.
func (s *Service) findSentTask(ctx context.Context, sub Submission, sent store.SentMessage) (agentsvc.Task, error) {
	id, hash, err := s.store.Tasks.FindSentMessage(ctx, sub.Owner, sub.Agent, sent)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if hash != sent.Hash {
		return agentsvc.Task{}, sub.newConflictError()
	}
	return s.Get(ctx, sub.taskVisibility(), id, store.TaskParts{History: true, Artifacts: true})
}

// FindByKey returns the task that an owner's message to an agent with this idempotency key led to, or
// [agentsvc.ErrNotFound].
func (s *Service) FindByKey(ctx context.Context, owner agentsvc.Owner, agent, key string) (agentsvc.TaskID, error) {
	id, _, err := s.store.Tasks.FindSentMessage(ctx, owner, agent, store.SentMessage{Message: agentsvc.MessageID(key), IsKey: true})
	return id, err
}

// resumeWithInput continues a task that waits for its user. If its session is occupied, the turn waits in the
// session's queue. It retries as long as the task changes between the read and the conditional write.
func (s *Service) resumeWithInput(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	for {
		switch err := s.tryResumeWithInput(ctx, sub, acc); {
		case errors.Is(err, agentsvc.ErrSessionBusy) && ctx.Err() == nil:
			if err := s.enqueueRun(ctx, acc); err != nil {
				return err
			}
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
		// The task or the session's queue changed between the read and the write: read again.
	}
}

// tryResumeWithInput is one attempt of resumeWithInput: it reads the task, checks that it waits for a message, and
// writes the turn on the condition that the task's epoch and sequence are unchanged. A task that does not wait for a
// message may have been continued by this very message already; findResent checks that.
func (s *Service) tryResumeWithInput(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	t, err := s.findTask(ctx, sub.taskVisibility(), sub.Message.Task, store.TaskParts{History: true, Artifacts: true, Approvals: true})
	sent := newSent(sub)
	sent.SetContext(t.Context)
	switch {
	case err != nil:
		return err
	case sub.Message.Context != "" && sub.Message.Context != t.Context:
		return agentsvc.NewInvalidError("message.context_id", "the task belongs to another context")
	case t.Status.State.IsTerminal():
		return s.findResent(ctx, sub, sent, acc, agentsvc.ErrTaskEnded)
	case !t.Status.State.IsInterrupted():
		return s.findResent(ctx, sub, sent, acc, agentsvc.ErrTaskBusy)
	case slices.ContainsFunc(t.Approvals, agentsvc.Approval.NeedsDecision):
		return s.findResent(ctx, sub, sent, acc, agentsvc.ErrAwaitingDecision)
	case slices.ContainsFunc(t.Approvals, isBudgetApproval):
		return s.findResent(ctx, sub, sent, acc, agentsvc.ErrAwaitingBudget)
	case len(t.Approvals) > 0:
		return s.findResent(ctx, sub, sent, acc, agentsvc.ErrAwaitingCredential)
	}
	if err := s.checkReceiverLimit(ctx, t.ID, sub.Receiver); err != nil {
		return err
	}
	s.setRunMessage(sub, acc)
	run := &acc.run
	s.newTurnFactory().setNextTurn(run, t, t.Seq+1, t.Seq+2)
	run.Message.Task, run.Message.Context = run.Task, ""
	evs := []agentsvc.Event{
		stampEvent(t.ID, t.Seq+1, agentsvc.Event{Message: &run.Message}),
		stampEvent(t.ID, t.Seq+2, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Working}}),
	}
	err = s.store.Tasks.Continue(ctx, t.Task, t.Epoch, *run, evs, sent, s.newRunReceiverEntries(*run)...)
	if isLost(err) {
		return s.findResent(ctx, sub, sent, acc, err)
	}
	if err != nil {
		return err
	}
	acc.task, acc.events = t.Task, evs
	for _, ev := range evs {
		acc.task.ApplyEvent(ev)
	}
	s.hub.publishEvents(s.newTopicKey(t.ID), evs...)
	return nil
}

// decideByMessage applies the decisions or credentials of a message. If nothing is open, the message may be a
// repeated one.
func (s *Service) decideByMessage(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	b := decisionBatch{by: sub.Owner, decisions: sub.Decisions, message: sub.Message.ID, sent: newSent(sub)}
	err := s.applyDecisions(ctx, sub.taskVisibility(), sub.Message.Task, b, acc)
	if errors.Is(err, agentsvc.ErrNoOpenDecision) || errors.Is(err, agentsvc.ErrTaskEnded) {
		return s.findResent(ctx, sub, b.sent, acc, err)
	}
	return err
}

// findResent checks whether a message that cannot continue its task is the one that already did. If so it sets
// acc.task and acc.beforeSeq, so that the caller sees that turn; if not it returns fallbackErr.
func (s *Service) findResent(ctx context.Context, sub Submission, sent *store.SentMessage, acc *acceptedTurn, fallbackErr error) error {
	if sent == nil {
		return fallbackErr
	}
	t, err := s.findSentTask(ctx, sub, *sent)
	switch {
	case errors.Is(err, agentsvc.ErrNotFound):
		return fallbackErr
	case err != nil:
		return err
	case t.ID != sub.Message.Task:
		return sub.newConflictError()
	}
	acc.task = t
	// The turn begins at the event that carries the message, or at the first decision that the message made.
	c := cursor{sentBytes: map[agentsvc.MessageID]int{}}
	s.readLog(ctx, nil, nil, t.ID, &c, func(ev agentsvc.Event, rerr error) bool {
		if rerr != nil || ev.Message != nil && ev.Message.ID == sub.Message.ID || ev.Decision != nil && ev.Decision.Message == sub.Message.ID {
			acc.beforeSeq, err = ev.Seq-1, rerr
			return false
		}
		return true
	})
	return err
}

// setRunMessage puts the message, its reservation's note and its receiver into the run. A message without an id gets
// one.
func (s *Service) setRunMessage(sub Submission, acc *acceptedTurn) {
	run := &acc.run
	run.Message = sub.Message
	run.Message.Role = agentsvc.RoleUser
	if run.Message.ID == "" {
		run.Message.ID = agentsvc.MessageID(agentsvc.NewID())
	}
	if sub.Reservation != nil {
		run.Reservation = sub.Reservation.Note
	}
	run.Receiver = sub.Receiver
}

// newSent returns what identifies a repeated send of the message, or nil if the client gave neither an id nor a key.
// The hash covers the content. Under a key it also covers the task and the context that the message names: the key
// alone selects the record.
func newSent(sub Submission) *store.SentMessage {
	m := sub.Message
	if m.ID == "" && sub.Key == "" {
		return nil
	}
	body := struct {
		Parts    []agentsvc.Part
		Metadata map[string]any
		Task     agentsvc.TaskID    `json:",omitempty"`
		Context  agentsvc.ContextID `json:",omitempty"`
		Earlier  []agentsvc.Message `json:",omitempty"`
	}{Parts: m.Parts, Metadata: m.Metadata, Earlier: m.PriorMessages}
	sent := &store.SentMessage{Message: m.ID, Context: m.Context}
	if sub.Key != "" {
		sent = &store.SentMessage{Message: agentsvc.MessageID(sub.Key), IsKey: true}
		body.Task, body.Context = m.Task, m.Context
	}
	sum := sha256.New()
	_ = store.WriteJSON(sum, body) // cannot fail: the values were decoded from JSON
	sent.Hash = hex.EncodeToString(sum.Sum(nil)[:16])
	return sent
}

// maxIDBytes bounds an identifier that a caller chooses: it becomes part of index keys.
const maxIDBytes = 256

// checkID returns an [agentsvc.InvalidError] about field if a caller's identifier cannot be stored: too long, not
// UTF-8 or with a NUL, which PostgreSQL's TEXT refuses.
func checkID(field, id string) error {
	switch {
	case len(id) > maxIDBytes:
		return agentsvc.NewInvalidError(field, "is longer than %d bytes", maxIDBytes)
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return agentsvc.NewInvalidError(field, "must be UTF-8 text without NUL")
	}
	return nil
}

// stampEvent sets an event's task, sequence and time. Times have microseconds, the resolution of the database.
func stampEvent(id agentsvc.TaskID, seq int64, ev agentsvc.Event) agentsvc.Event {
	ev.Task, ev.Seq, ev.At = id, seq, time.Now().UTC().Truncate(time.Microsecond)
	if ev.Status != nil {
		ev.Status.At = ev.At
	}
	return ev
}

// isLost reports whether a conditional write failed because the task had changed.
func isLost(err error) bool { return errors.Is(err, agentsvc.ErrLeaseLost) }
