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
	"stoa/agentsvc/trail"
)

// Submission is a message for an agent. Message.Task names the task it continues, if any; Message.ID, where the
// client chose one, makes sending it again harmless, and so does Key, which goes before it: whatever else it sends under
// the same Key is refused. Live says that somebody waits: the turn then starts in this
// process at once, if there is room. Rulings are what [Rulings] found in the message, and then nothing else is read of it:
// decisions, where its sender may decide, which are about anybody's task, or credentials for a task of its own.
type Submission struct {
	Agent       string
	Owner       agentsvc.Owner
	Message     agentsvc.Message
	Key         string
	Awaited     bool
	Background  bool // no human has sent it: it comes after what humans have sent
	Decisions   []DecisionInput
	Reservation *Reservation // nil = nothing was reserved for it
	// Receiver is told of what happens to the task from the turn on that the message opens; nil = nobody new is.
	Receiver *store.Receiver
}

// Reservation is what was reserved for a message when it was admitted.
type Reservation struct {
	Note     string // for whoever settles it when the turn is run
	Recorded bool   // a turn was written that has the note; else whoever admitted the message settles
}

func (sub Submission) runPriority() store.Priority {
	switch {
	case sub.Awaited:
		return store.PriorityAwaited
	case sub.Background:
		return store.PriorityBackground
	}
	return store.PriorityNormal
}

// taskVisibility is how far a submission goes.
func (sub Submission) taskVisibility() Visibility {
	if len(sub.Decisions) > 0 && !HasCredentials(sub.Decisions) {
		return Visibility{Agents: []string{sub.Agent}}
	}
	return Visibility{[]string{sub.Agent}, &sub.Owner}
}

// ErrConflict says that the same message id came before with another body.
var ErrConflict = errors.New("a message with this id and another body was sent before")

// ErrKeyReused says that the same key came before with another message.
var ErrKeyReused = errors.New("another message came under this key before; take a new Idempotency-Key, or over MCP a new id of the call")

// Submit accepts a message as a new turn of a task, or starts a task if the message names none. When Submit returns,
// the turn survives a crash. It returns [agentsvc.ErrNotFound] for a task out of reach, [agentsvc.ErrTaskEnded] for
// one that has ended, [agentsvc.ErrTaskBusy] for one that is at work, [agentsvc.ErrAwaitingDecision], [agentsvc.ErrAwaitingCredential] and
// [agentsvc.ErrAwaitingBudget] for one that waits for a decision, a credential or a budget, [agentsvc.ErrSessionBusy] where the agent takes no message while its
// session is at work, and [ErrConflict]; for a message that brings decisions or credentials what [Service.Decide] returns.
func (s *Service) Submit(ctx context.Context, sub Submission) (agentsvc.Task, error) {
	acc, err := s.acceptMessage(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	s.dispatchTurn(acc)
	return acc.task, nil
}

// SubmitAndFollow is Submit for a caller who listens: beside the task as accepted it returns the turn's events, the first ones
// included. They end with the task's end or with ctx; the caller breaks off when it has seen enough.
func (s *Service) SubmitAndFollow(ctx context.Context, sub Submission) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	sub.Awaited = true
	acc, err := s.acceptMessage(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	if acc.events == nil { // sent before: what there is to see stands in the log
		return acc.task, s.followLog(ctx, acc.task.ID, acc.beforeSeq), nil
	}
	r := s.hub.subscribe(s.newTopicKey(acc.task.ID), acc.task.Seq)
	if !acc.hasSlot {
		r.followRemote()
	}
	s.dispatchTurn(acc)
	r.endIfTenantEnded(ctx)
	var over atomic.Bool // the turn, as far as the caller knows
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

// acceptedTurn is a turn that is in the database and waits to be started. Events is nil where it was there already.
type acceptedTurn struct {
	task      agentsvc.Task
	events    []agentsvc.Event
	beforeSeq int64 // sequence before the turn's first event, where it was there already
	run       store.Run
	hasSlot   bool // a place of this process's workers
	// confirmWritten, where it is not nil, is to be told whether the run was written, for which the queue has made room.
	confirmWritten func(bool)
}

func (s *Service) dispatchTurn(acc acceptedTurn) {
	switch {
	case acc.hasSlot:
		s.executor.StartRun(acc.run)
	case acc.events != nil:
		s.executor.NotifyQueued(acc.run)
	}
}

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

// writeTurn writes a turn, in a place of this process's workers or for the queue. It returns [store.ErrTooManyRunning] where there is no
// such place, or none for this tenant.
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
	if sub.Reservation != nil && err == nil && acc.events != nil && len(sub.Decisions) == 0 {
		sub.Reservation.Recorded = true
	}
	if acc.hasSlot && (err != nil || acc.events == nil) {
		s.executor.ReleaseSlot(s.tenant)
		acc.hasSlot = false
	}
	return acc, err
}

// reserveQueueDepth makes room in the queue for a run that is about to be written.
func (s *Service) reserveQueueDepth(ctx context.Context) (done func(written bool), err error) {
	if s.options.MaxQueueDepth == 0 {
		return func(bool) {}, nil
	}
	return s.executor.ReserveQueueDepth(ctx, s.tenant, s.options.MaxQueueDepth)
}

// openTask starts a new task. Where its session is occupied it does what the agent does then, and tries again.
func (s *Service) openTask(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	sent := newSent(sub)
	acc.run.MayWait = !acc.hasSlot && sub.Message.Context != "" && s.busyPolicy(sub.Agent) == Queue
	for range maxQueueAttempts {
		err := s.createTask(ctx, sub, sent, acc)
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

// createTask writes a new task, with a run in this process where acc holds a place.
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
	return s.store.CreateTask(ctx, *run, acc.events, sent, s.newRunReceiverEntries(*run)...)
}

// newConflictError is what a message is told that is another one than that which came before it under its key, or else its id.
func (sub *Submission) newConflictError() error {
	if sub.Key != "" {
		return ErrKeyReused
	}
	return ErrConflict
}

// findSentTask finds the task that the same message opened before.
func (s *Service) findSentTask(ctx context.Context, sub Submission, sent store.SentMessage) (agentsvc.Task, error) {
	id, hash, err := s.store.FindSentMessage(ctx, sub.Owner, sub.Agent, sent)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if hash != sent.Hash {
		return agentsvc.Task{}, sub.newConflictError()
	}
	return s.Get(ctx, sub.taskVisibility(), id, store.TaskParts{History: true, Artifacts: true})
}

// FindByKey returns the task to which an owner's message to an agent has led that came under a key. It returns
// [agentsvc.ErrNotFound] where there is none.
func (s *Service) FindByKey(ctx context.Context, owner agentsvc.Owner, agent, key string) (agentsvc.TaskID, error) {
	id, _, err := s.store.FindSentMessage(ctx, owner, agent, store.SentMessage{Message: agentsvc.MessageID(key), IsKey: true})
	return id, err
}

// resumeWithInput continues a task that waits for its user. Where its session is occupied the turn waits for the others.
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
		// The task or the line moved on between the look and the step; look again.
	}
}

// tryResumeWithInput is one try of resume.
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
	err = s.store.ContinueTask(ctx, t.Task, t.Epoch, *run, evs, sent, s.newRunReceiverEntries(*run)...)
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

// decideByMessage settles what the message decides.
func (s *Service) decideByMessage(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	b := decisionBatch{by: sub.Owner, decisions: sub.Decisions, message: sub.Message.ID, sent: newSent(sub)}
	err := s.applyDecisions(ctx, sub.taskVisibility(), sub.Message.Task, b, acc)
	if errors.Is(err, agentsvc.ErrNoOpenDecision) || errors.Is(err, agentsvc.ErrTaskEnded) {
		return s.findResent(ctx, sub, b.sent, acc, err)
	}
	return err
}

// findResent finds out whether a message that cannot continue its task is the one that did before. If not it returns the
// error otherwise.
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

// setRunMessage sets what a run has of the message that opens its turn.
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

// newSent returns what makes the message recognisable, nil if its client gave it neither an id nor a key.
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
	_ = store.WriteJSON(sum, body) // it is made of what was decoded from JSON
	sent.Hash = hex.EncodeToString(sum.Sum(nil)[:16])
	return sent
}

// maxIDBytes bounds an identifier that a caller chooses, in bytes: it becomes part of keys in the database.
const maxIDBytes = 256

// checkID says what is wrong with an identifier that a caller chose.
func checkID(field, id string) error {
	switch {
	case len(id) > maxIDBytes:
		return agentsvc.NewInvalidError(field, "is longer than %d bytes", maxIDBytes)
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return agentsvc.NewInvalidError(field, "must be UTF-8 text without NUL")
	}
	return nil
}

// stampEvent gives an event its place in the log.
func stampEvent(id agentsvc.TaskID, seq int64, ev agentsvc.Event) agentsvc.Event {
	ev.Task, ev.Seq, ev.At = id, seq, time.Now().UTC().Truncate(time.Microsecond)
	if ev.Status != nil {
		ev.Status.At = ev.At
	}
	return ev
}

func isLost(err error) bool { return errors.Is(err, agentsvc.ErrLeaseLost) }
