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
	Agent   string
	Owner   agentsvc.Owner
	Message agentsvc.Message
	Key     string
	Live    bool
	Unasked bool // no human has sent it: it comes after what humans have sent
	Rulings []Ruling
	Hold    *Hold // nil = nothing was reserved for it
	// Receiver is told of what happens to the task from the turn on that the message opens; nil = nobody new is.
	Receiver *store.Receiver
}

// Hold is what was reserved for a message when it was admitted.
type Hold struct {
	Note string // for whoever settles it when the turn is run
	Kept bool   // a turn was written that has the note; else whoever admitted the message settles
}

func (sub Submission) priority() store.Priority {
	switch {
	case sub.Live:
		return store.Awaited
	case sub.Unasked:
		return store.Unasked
	}
	return store.Normal
}

// reach is how far a submission goes.
func (sub Submission) reach() Reach {
	if len(sub.Rulings) > 0 && !Supplies(sub.Rulings) {
		return Reach{Agents: []string{sub.Agent}}
	}
	return Reach{[]string{sub.Agent}, &sub.Owner}
}

// ErrConflict says that the same message id came before with another body.
var ErrConflict = errors.New("a message with this id and another body was sent before")

// ErrKeyReused says that the same key came before with another message.
var ErrKeyReused = errors.New("another message came under this key before; take a new Idempotency-Key, or over MCP a new id of the call")

// Submit accepts a message as a new turn of a task, or starts a task if the message names none. When Submit returns,
// the turn survives a crash. It returns [agentsvc.ErrNotFound] for a task out of reach, [agentsvc.ErrTerminal] for
// one that has ended, [agentsvc.ErrBusy] for one that is at work, [agentsvc.ErrUndecided], [agentsvc.ErrNoCredential] and
// [agentsvc.ErrPaused] for one that waits for a decision, a credential or a budget, [agentsvc.ErrOccupied] where the agent takes no message while its
// session is at work, and [ErrConflict]; for a message that brings decisions or credentials what [Service.Decide] returns.
func (s *Service) Submit(ctx context.Context, sub Submission) (agentsvc.Task, error) {
	acc, err := s.accept(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	s.start(acc)
	return acc.task, nil
}

// Call is Submit for a caller who listens: beside the task as accepted it returns the turn's events, the first ones
// included. They end with the task's end or with ctx; the caller breaks off when it has seen enough.
func (s *Service) Call(ctx context.Context, sub Submission) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	sub.Live = true
	acc, err := s.accept(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	if acc.events == nil { // sent before: what there is to see stands in the log
		return acc.task, s.from(ctx, acc.task.ID, acc.before), nil
	}
	r := s.hub.subscribe(s.key(acc.task.ID), acc.task.Seq)
	if !acc.held {
		r.reach()
	}
	s.start(acc)
	r.endIfOver(ctx)
	var over atomic.Bool // the turn, as far as the caller knows
	context.AfterFunc(ctx, func() {
		r.close()
		if !over.Load() {
			s.workers.Detach(s.tenant, acc.task.ID)
		}
	})
	return acc.task, func(yield func(agentsvc.Event, error) bool) {
		defer r.close()
		see := func(ev agentsvc.Event, err error) bool {
			if rests(ev) {
				over.Store(true)
			}
			return yield(ev, err)
		}
		for _, ev := range acc.events {
			if !see(ev, nil) || ends(ev) {
				return
			}
		}
		s.follow(ctx, r, acc.task.ID, acc.task.Seq, false, see)
	}, nil
}

// accepted is a turn that is in the database and waits to be started. Events is nil where it was there already.
type accepted struct {
	task   agentsvc.Task
	events []agentsvc.Event
	before int64 // sequence before the turn's first event, where it was there already
	run    store.Run
	held   bool // a place of this process's workers
	// written, where it is not nil, is to be told whether the run was written, for which the queue has made room.
	written func(bool)
}

func (s *Service) start(acc accepted) {
	switch {
	case acc.held:
		s.workers.Start(acc.run)
	case acc.events != nil:
		s.workers.Queued(acc.run)
	}
}

func (s *Service) accept(ctx context.Context, sub Submission) (acc accepted, err error) {
	ctx, span := trail.Start(ctx, "submit")
	defer func() {
		if span.IsRecording() {
			span.SetAttributes(trail.TaskKey.String(string(acc.task.ID)))
		}
		trail.End(span, err)
	}()
	if len(sub.Message.Parts) == 0 {
		return accepted{}, agentsvc.Invalid("message.parts", "a message needs at least one part")
	}
	if err := errors.Join(checkID("message.message_id", string(sub.Message.ID)), checkID("message.context_id", string(sub.Message.Context))); err != nil {
		return accepted{}, err
	}
	if sub.Live {
		if acc, err = s.write(ctx, sub, true); !errors.Is(err, store.ErrNoRoom) {
			return acc, err
		}
	}
	return s.write(ctx, sub, false)
}

// write writes a turn, in a place of this process's workers or for the queue. It returns [store.ErrNoRoom] where there is no
// such place, or none for this tenant.
func (s *Service) write(ctx context.Context, sub Submission, here bool) (acc accepted, err error) {
	req := request{priority: sub.priority(), trace: trail.Parent(ctx)}
	if here {
		if req.worker, acc.held = s.workers.Reserve(s.tenant); !acc.held {
			return acc, store.ErrNoRoom
		}
	}
	acc.run = s.turns().new(req)
	if !here && len(sub.Rulings) == 0 {
		if acc.written, err = s.admit(ctx); err != nil {
			return accepted{}, err
		}
	}
	defer func() {
		if acc.written != nil {
			acc.written(err == nil && acc.events != nil)
		}
	}()
	switch {
	case len(sub.Rulings) > 0:
		err = s.resolve(ctx, sub, &acc)
	case sub.Message.Task == "":
		err = s.open(ctx, sub, &acc)
	default:
		err = s.resume(ctx, sub, &acc)
	}
	if sub.Hold != nil && err == nil && acc.events != nil && len(sub.Rulings) == 0 {
		sub.Hold.Kept = true
	}
	if acc.held && (err != nil || acc.events == nil) {
		s.workers.Release(s.tenant)
		acc.held = false
	}
	return acc, err
}

// admit makes room in the queue for a run that is about to be written.
func (s *Service) admit(ctx context.Context) (done func(written bool), err error) {
	if s.o.Depth == 0 {
		return func(bool) {}, nil
	}
	return s.workers.Admit(ctx, s.tenant, s.o.Depth)
}

// open starts a new task. Where its session is occupied it does what the agent does then, and tries again.
func (s *Service) open(ctx context.Context, sub Submission, acc *accepted) error {
	sent := sentBy(sub)
	acc.run.Wait = !acc.held && sub.Message.Context != "" && s.onBusy(sub.Agent) == Queue
	for range maxTries {
		err := s.begin(ctx, sub, sent, acc)
		occupied := errors.Is(err, agentsvc.ErrOccupied)
		if !occupied && !errors.Is(err, store.ErrSent) {
			return err
		}
		acc.events = nil
		if sent != nil {
			acc.task, err = s.known(ctx, sub, *sent)
			if !occupied || !errors.Is(err, agentsvc.ErrNotFound) {
				return err
			}
		}
		if err := s.meet(ctx, sub, acc); err != nil {
			return err
		}
	}
	return agentsvc.ErrOccupied
}

// begin writes a new task, with a run in this process where acc holds a place.
func (s *Service) begin(ctx context.Context, sub Submission, sent *store.Sent, acc *accepted) error {
	s.fill(sub, acc)
	run := &acc.run
	s.turns().open(run, sub.Agent, sub.Owner, sub.Message.Context)
	run.Message.Task, run.Message.Context = run.Task, ""
	acc.events = []agentsvc.Event{stamp(run.Task, 1, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &run.Message}})}
	if acc.held {
		acc.events = append(acc.events, stamp(run.Task, 2, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Working}}))
	}
	run.Seq = int64(len(acc.events))
	acc.task = agentsvc.Task{ID: run.Task, Context: run.Context, Agent: run.Agent, Owner: run.Owner, Created: acc.events[0].At}
	for _, ev := range acc.events {
		acc.task.Apply(ev)
	}
	return s.store.Accept(ctx, *run, acc.events, sent, s.setWith(*run)...)
}

// conflict is what a message is told that is another one than that which came before it under its key, or else its id.
func (sub *Submission) conflict() error {
	if sub.Key != "" {
		return ErrKeyReused
	}
	return ErrConflict
}

// known finds the task that the same message opened before.
func (s *Service) known(ctx context.Context, sub Submission, sent store.Sent) (agentsvc.Task, error) {
	id, hash, err := s.store.FindSent(ctx, sub.Owner, sub.Agent, sent)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if hash != sent.Hash {
		return agentsvc.Task{}, sub.conflict()
	}
	return s.Get(ctx, sub.reach(), id, store.With{History: true, Artifacts: true})
}

// Keyed returns the task to which an owner's message to an agent has led that came under a key. It returns
// [agentsvc.ErrNotFound] where there is none.
func (s *Service) Keyed(ctx context.Context, owner agentsvc.Owner, agent, key string) (agentsvc.TaskID, error) {
	id, _, err := s.store.FindSent(ctx, owner, agent, store.Sent{Message: agentsvc.MessageID(key), Key: true})
	return id, err
}

// resume continues a task that waits for its user. Where its session is occupied the turn waits for the others.
func (s *Service) resume(ctx context.Context, sub Submission, acc *accepted) error {
	for {
		switch err := s.proceed(ctx, sub, acc); {
		case errors.Is(err, agentsvc.ErrOccupied) && ctx.Err() == nil:
			if err := s.queue(ctx, acc); err != nil {
				return err
			}
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
		// The task or the line moved on between the look and the step; look again.
	}
}

// proceed is one try of resume.
func (s *Service) proceed(ctx context.Context, sub Submission, acc *accepted) error {
	t, err := s.find(ctx, sub.reach(), sub.Message.Task, store.With{History: true, Artifacts: true, Approvals: true})
	sent := sentBy(sub)
	sent.Within(t.Context)
	switch {
	case err != nil:
		return err
	case sub.Message.Context != "" && sub.Message.Context != t.Context:
		return agentsvc.Invalid("message.context_id", "the task belongs to another context")
	case t.Status.State.Terminal():
		return s.resent(ctx, sub, sent, acc, agentsvc.ErrTerminal)
	case !t.Status.State.Interrupted():
		return s.resent(ctx, sub, sent, acc, agentsvc.ErrBusy)
	case slices.ContainsFunc(t.Approvals, agentsvc.Approval.Decidable):
		return s.resent(ctx, sub, sent, acc, agentsvc.ErrUndecided)
	case slices.ContainsFunc(t.Approvals, awaits):
		return s.resent(ctx, sub, sent, acc, agentsvc.ErrPaused)
	case len(t.Approvals) > 0:
		return s.resent(ctx, sub, sent, acc, agentsvc.ErrNoCredential)
	}
	if err := s.mayHave(ctx, t.ID, sub.Receiver); err != nil {
		return err
	}
	s.fill(sub, acc)
	run := &acc.run
	s.turns().goOn(run, t, t.Seq+1, t.Seq+2)
	run.Message.Task, run.Message.Context = run.Task, ""
	evs := []agentsvc.Event{
		stamp(t.ID, t.Seq+1, agentsvc.Event{Message: &run.Message}),
		stamp(t.ID, t.Seq+2, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Working}}),
	}
	err = s.store.Continue(ctx, t.Task, t.Epoch, *run, evs, sent, s.setWith(*run)...)
	if isLost(err) {
		return s.resent(ctx, sub, sent, acc, err)
	}
	if err != nil {
		return err
	}
	acc.task, acc.events = t.Task, evs
	for _, ev := range evs {
		acc.task.Apply(ev)
	}
	s.hub.publish(s.key(t.ID), evs...)
	return nil
}

// resolve settles what the message decides.
func (s *Service) resolve(ctx context.Context, sub Submission, acc *accepted) error {
	b := bench{by: sub.Owner, rulings: sub.Rulings, message: sub.Message.ID, sent: sentBy(sub)}
	err := s.decide(ctx, sub.reach(), sub.Message.Task, b, acc)
	if errors.Is(err, agentsvc.ErrDecided) || errors.Is(err, agentsvc.ErrTerminal) {
		return s.resent(ctx, sub, b.sent, acc, err)
	}
	return err
}

// resent finds out whether a message that cannot continue its task is the one that did before. If not it returns the
// error otherwise.
func (s *Service) resent(ctx context.Context, sub Submission, sent *store.Sent, acc *accepted, otherwise error) error {
	if sent == nil {
		return otherwise
	}
	t, err := s.known(ctx, sub, *sent)
	switch {
	case errors.Is(err, agentsvc.ErrNotFound):
		return otherwise
	case err != nil:
		return err
	case t.ID != sub.Message.Task:
		return sub.conflict()
	}
	acc.task = t
	c := cursor{sent: map[agentsvc.MessageID]int{}}
	s.read(ctx, nil, nil, t.ID, &c, func(ev agentsvc.Event, rerr error) bool {
		if rerr != nil || ev.Message != nil && ev.Message.ID == sub.Message.ID || ev.Decision != nil && ev.Decision.Message == sub.Message.ID {
			acc.before, err = ev.Seq-1, rerr
			return false
		}
		return true
	})
	return err
}

// fill sets what a run has of the message that opens its turn.
func (s *Service) fill(sub Submission, acc *accepted) {
	run := &acc.run
	run.Message = sub.Message
	run.Message.Role = agentsvc.RoleUser
	if run.Message.ID == "" {
		run.Message.ID = agentsvc.MessageID(agentsvc.NewID())
	}
	if sub.Hold != nil {
		run.Reserved = sub.Hold.Note
	}
	run.Receiver = sub.Receiver
}

// sentBy returns what makes the message recognisable, nil if its client gave it neither an id nor a key.
func sentBy(sub Submission) *store.Sent {
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
	}{Parts: m.Parts, Metadata: m.Metadata, Earlier: m.Earlier}
	sent := &store.Sent{Message: m.ID, Context: m.Context}
	if sub.Key != "" {
		sent = &store.Sent{Message: agentsvc.MessageID(sub.Key), Key: true}
		body.Task, body.Context = m.Task, m.Context
	}
	sum := sha256.New()
	_ = store.WriteJSON(sum, body) // it is made of what was decoded from JSON
	sent.Hash = hex.EncodeToString(sum.Sum(nil)[:16])
	return sent
}

// maxID bounds an identifier that a caller chooses, in bytes: it becomes part of keys in the database.
const maxID = 256

// checkID says what is wrong with an identifier that a caller chose.
func checkID(field, id string) error {
	switch {
	case len(id) > maxID:
		return agentsvc.Invalid(field, "is longer than %d bytes", maxID)
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return agentsvc.Invalid(field, "must be UTF-8 text without NUL")
	}
	return nil
}

// stamp gives an event its place in the log.
func stamp(id agentsvc.TaskID, seq int64, ev agentsvc.Event) agentsvc.Event {
	ev.Task, ev.Seq, ev.At = id, seq, time.Now().UTC().Truncate(time.Microsecond)
	if ev.Status != nil {
		ev.Status.At = ev.At
	}
	return ev
}

func isLost(err error) bool { return errors.Is(err, agentsvc.ErrLost) }
