package task

import (
	"cmp"
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
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/trail"
	"stoa/tenancy/audit"
)

// Submission is a message for an agent, as a protocol decoded it.
type Submission struct {
	// Agent is the one that the request addresses, Owner the authenticated user; neither is taken from the message.
	Agent string
	Owner agentsvc.Owner
	// Roles are those of the user. The turn keeps them, so that its agents read the documents that are for them.
	Roles []string
	// Message.Task names the task that the message continues, if any. A Message.ID that the client chose makes a
	// repeated send harmless: it finds the task of the first one.
	Message agentsvc.Message
	// NewContext is the id of the context that the message opens, if it names neither a context nor a task; "" = a random
	// one.
	NewContext agentsvc.ContextID
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
	// LimitReservation is what admission reserved from the tenant's limits for this message; nil = nothing.
	LimitReservation *LimitReservation
	// Receiver is a push notification receiver to register with the turn; nil = none. One that receives all events is
	// registered with the task of a repeated message as well.
	Receiver *receiver.Receiver
	// Memory is what reads on behalf of the sender reserve, see [Visibility].Memory.
	Memory *capacity.MemoryReservation
	// Origin is where the message came from, for audit entries.
	Origin audit.Origin
}

// LimitReservation is what admission reserved from a tenant's limits for a message. The note is stored with the run; the
// run's first usage report, or a cancellation before it, settles the reservation by this note.
type LimitReservation struct {
	Note string // identifies the reservation for the code that settles it
	// Recorded reports that a run was written with the note. If it is false when the submission returns, the caller
	// must release the reservation itself.
	Recorded bool
}

// taskVisibility returns which tasks the submission may continue: the sender's own tasks of the agent, or, for
// decisions about calls, any task of the agent.
func (sub Submission) taskVisibility() Visibility {
	if len(sub.Decisions) > 0 && !hasCredentials(sub.Decisions) {
		return Visibility{Agents: []string{sub.Agent}, Memory: sub.Memory}
	}
	return Visibility{[]string{sub.Agent}, &sub.Owner, sub.Memory}
}

// ErrConflict reports that a message with the same id and another body was accepted before.
var ErrConflict = agentsvc.NewError(agentsvc.CodeReused, "a message with this id and another body was sent before")

// ErrKeyReused reports that another message was accepted under the same idempotency key.
var ErrKeyReused = agentsvc.NewError(agentsvc.CodeReused, "this key was used for another message")

// Messages accepts the messages of a tenant's users and triggers as turns.
type Messages struct {
	turns     *pipeline
	reader    *Reader
	decisions *Decisions
	canceller *Canceller
	receivers *receiver.Store
	// onBusy is [Options].OnBusy.
	onBusy map[string]OnBusy
	hash   func(text []byte) string
}

// Submit accepts a message as a new turn of a task, or opens a task if the message names none. When Submit returns,
// the turn is committed and survives a crash. It returns
//
//   - [agentsvc.ErrNotFound] for a task that does not exist or is not visible,
//   - [agentsvc.ErrTaskEnded] and [agentsvc.ErrTaskBusy] for one that has ended or executes,
//   - [agentsvc.ErrAwaitingDecision], [agentsvc.ErrAwaitingCredential] and [agentsvc.ErrAwaitingBudget] for one that
//     waits for something else than a message,
//   - [agentsvc.ErrSessionBusy] where the agent's OnBusy policy refuses the message,
//   - [ErrConflict] and [ErrKeyReused] for a repeated id or key with another content,
//   - for a message with decisions or credentials what [Decisions.Decide] returns.
func (m *Messages) Submit(ctx context.Context, sub Submission) (agentsvc.Task, error) {
	acc, err := m.acceptMessage(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, err
	}
	m.turns.dispatch(acc)
	return acc.task, nil
}

// SubmitAndFollow is Submit for a caller who waits. It also returns the turn's events, from the first one. They end
// with the task's end or with ctx; the caller stops iterating when it has seen enough. If ctx ends before the turn
// has ended or paused, the run continues as one whose caller has disconnected ([Executor].DetachCaller).
func (m *Messages) SubmitAndFollow(ctx context.Context, sub Submission) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
	sub.Awaited = true
	memory := sub.Memory // the closure must not keep the whole submission
	acc, err := m.acceptMessage(ctx, sub)
	if err != nil {
		return agentsvc.Task{}, nil, err
	}
	if acc.events == nil { // a repeated message: its events are on the log
		return acc.task, m.reader.logs.follow(ctx, memory, acc.task.ID, acc.beforeSeq), nil
	}
	// Subscribe before the run is dispatched, so that none of its events can be missed without reading the log.
	r := m.turns.hub.subscribe(topicKey{m.turns.tenant, acc.task.ID}, acc.task.Seq)
	if !acc.hasSlot() {
		r.followRemote()
	}
	m.turns.dispatch(acc)
	r.endIfTenantEnded(ctx)
	var over atomic.Bool // set when the caller has seen the turn's end or pause
	context.AfterFunc(ctx, func() {
		r.close()
		if !over.Load() {
			m.turns.executor.DetachCaller(m.turns.tenant, acc.task.ID)
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
		m.reader.logs.stream(ctx, memory, r, acc.task.ID, acc.task.Seq, false, see)
	}, nil
}

// acceptMessage validates the message and commits its turn.
func (m *Messages) acceptMessage(ctx context.Context, sub Submission) (acc acceptedTurn, err error) {
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
	acc, err = m.turns.accept(ctx, m.newSource(sub), acceptOptions{isAwaited: sub.Awaited, isCounted: len(sub.Decisions) == 0})
	// The run that continues after decisions is not admitted again, so it stores no note.
	if sub.LimitReservation != nil && err == nil && acc.events != nil && len(sub.Decisions) == 0 {
		sub.LimitReservation.Recorded = true
	}
	if r := sub.Receiver; r != nil && r.FromStart && err == nil && acc.events == nil {
		repeated := *r
		repeated.Task = acc.task.ID
		err = m.receivers.Set(ctx, repeated, newReceiverEntries(m.hash, sub.taskVisibility(), sub.Origin, "notification.set", repeated.Task, repeated.ID)...)
	}
	return acc, err
}

// newSource returns the source of a message's turn.
func (m *Messages) newSource(sub Submission) turnSource {
	sent := newSent(sub)
	switch {
	case len(sub.Decisions) > 0:
		return &decisionSource{
			decisions: m.decisions, visibility: sub.taskVisibility(), task: sub.Message.Task, priority: sub.priority(), resent: sub,
			batch: decisionBatch{by: sub.Owner, from: sub.Origin, decisions: sub.Decisions, message: sub.Message.ID, sent: sent},
		}
	case sub.Message.Task == "":
		return &newTask{messages: m, sub: sub, sent: sent}
	}
	return &continuation{messages: m, sub: sub, sent: sent}
}

// busyPolicy returns the policy of an agent.
func (m *Messages) busyPolicy(agent string) OnBusy { return cmp.Or(m.onBusy[agent], Queue) }

// newTask is the source of a message that opens a task. If the task's session is occupied by another run, the agent's
// OnBusy policy decides.
type newTask struct {
	messages *Messages
	sub      Submission
	sent     *store.SentMessage
	// repeated is the turn that the same message opened before, set by resolveConflict.
	repeated *acceptedTurn
}

// plan implements turnSource. A run with a slot is written as working (two events), a queued one as submitted.
func (n *newTask) plan(ctx context.Context, where placement) (turnPlan, error) {
	m := n.messages
	if n.repeated != nil {
		return turnPlan{repeated: n.repeated}, nil
	}
	turn := m.turns.newTask(n.sub.newOpening(ctx), where, n.sub.Agent, n.sub.Owner, n.sub.Message.Context)
	// A new context cannot be occupied, and a run with a slot must not wait.
	turn.MayWait = where.worker == "" && n.sub.Message.Context != "" && m.busyPolicy(n.sub.Agent) == Queue
	turn.Sent = n.sent
	evs := make([]agentsvc.Event, 0, 2)
	evs = append(evs, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &turn.Message}})
	if where.worker != "" {
		evs = append(evs, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Working}})
	}
	setFirstEvents(&turn, evs)
	turn.AuditEntries = newTurnReceiverEntries(m.hash, turn, n.sub.Origin)
	return turnPlan{turn: turn}, nil
}

// resolveConflict implements turnSource. A write into an existing session fails in the same way for "occupied" and for
// "sent before", so both are looked up.
func (n *newTask) resolveConflict(ctx context.Context, where placement, err error) (placement, error) {
	if n.sent != nil {
		t, lookErr := n.messages.reader.findSentTask(ctx, n.sub, *n.sent)
		if lookErr == nil {
			n.repeated = &acceptedTurn{task: t}
			return where, nil
		}
		if !errors.Is(lookErr, agentsvc.ErrNotFound) || !errors.Is(err, agentsvc.ErrSessionBusy) {
			return where, lookErr
		}
	}
	switch n.messages.busyPolicy(n.sub.Agent) {
	case Reject:
		return where, agentsvc.ErrSessionBusy
	case Interrupt:
		return where, n.messages.canceller.cancelSession(ctx, n.sub)
	}
	return n.messages.turns.moveToQueue(ctx, where)
}

// continuation is the source of a message to a task that waits for its user. If the task's session is occupied, the
// turn waits in the session's queue.
type continuation struct {
	messages *Messages
	sub      Submission
	sent     *store.SentMessage
	// checkSent is set after a conflict: the message may have been applied meanwhile.
	checkSent bool
}

// plan implements turnSource. A task that does not wait for a message may have been continued by this very message
// already.
func (c *continuation) plan(ctx context.Context, where placement) (turnPlan, error) {
	m := c.messages
	t, err := m.reader.findTask(ctx, c.sub.taskVisibility(), c.sub.Message.Task, store.TaskParts{History: true, Artifacts: true, Approvals: true})
	if err != nil {
		return turnPlan{}, err
	}
	c.sent.SetContext(t.Context)
	if c.sub.Message.Context != "" && c.sub.Message.Context != t.Context {
		return turnPlan{}, agentsvc.NewInvalidError("message.context_id", "the task belongs to another context")
	}
	refused := checkAwaitsMessage(t)
	if refused != nil || c.checkSent {
		earlier, err := m.reader.findSentTurn(ctx, c.sub, c.sent)
		switch {
		case err == nil:
			return turnPlan{repeated: &earlier}, nil
		case !errors.Is(err, agentsvc.ErrNotFound):
			return turnPlan{}, err
		case refused != nil:
			return turnPlan{}, refused
		}
	}
	if err := checkReceiverLimit(ctx, m.receivers, t.ID, c.sub.Receiver); err != nil {
		return turnPlan{}, err
	}
	turn := m.turns.nextTurn(c.sub.newOpening(ctx), where, t, t.Seq+1)
	turn.Sent = c.sent
	setFirstEvents(&turn, []agentsvc.Event{{Message: &turn.Message}, {Status: &agentsvc.Status{State: agentsvc.Working}}})
	turn.AuditEntries = newTurnReceiverEntries(m.hash, turn, c.sub.Origin)
	return turnPlan{turn: turn, seen: t}, nil
}

// resolveConflict implements turnSource.
func (c *continuation) resolveConflict(ctx context.Context, where placement, err error) (placement, error) {
	c.checkSent = c.checkSent || errors.Is(err, agentsvc.ErrTaskChanged)
	if errors.Is(err, agentsvc.ErrSessionBusy) {
		return c.messages.turns.moveToQueue(ctx, where)
	}
	return where, nil
}

// checkAwaitsMessage returns nil if t waits for a message, else the error for its sender.
func checkAwaitsMessage(t store.StoredTask) error {
	switch {
	case t.Status.State.IsTerminal():
		return agentsvc.ErrTaskEnded
	case !t.Status.State.IsInterrupted():
		return agentsvc.ErrTaskBusy
	case slices.ContainsFunc(t.Approvals, agentsvc.Approval.NeedsDecision):
		return agentsvc.ErrAwaitingDecision
	case slices.ContainsFunc(t.Approvals, isBudgetApproval):
		return agentsvc.ErrAwaitingBudget
	case len(t.Approvals) > 0:
		return agentsvc.ErrAwaitingCredential
	}
	return nil
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

// checkID returns an error with [agentsvc.CodeInvalid] about field if a caller's identifier cannot be stored: too long, not
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
