package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"stoa/agentsvc"
)

// maxRounds bounds a loop that has no bound of its own.
const maxRounds = 100

// GroupOptions tune an agent that is made of others. The zero value works.
type GroupOptions struct {
	GlobalInstruction string // stands before the instructions of all members
	CompleteOnly      bool   // yield no chunks, only whole messages
}

// groupRun is one turn of a group.
type groupRun struct {
	members []Member
	inv     Invocation
	options GroupOptions
	yield   func(agentsvc.Event, error) bool
}

// iterateGroup returns the turn of a group as an iterator.
func iterateGroup(inv Invocation, members []Member, o GroupOptions, f func(r groupRun) error) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		err := f(groupRun{members, inv, o, yield})
		if err != nil && !errors.Is(err, errStopped) {
			yield(agentsvc.Event{}, err)
		}
	}
}

// yieldEnd ends the turn with ev.
func (r groupRun) yieldEnd(ev agentsvc.Event) error {
	r.yield(ev, nil)
	return nil
}

// newMemberInvocation is the invocation of a member that goes on from talk.
func (r groupRun) newMemberInvocation(frame string, conversation []agentsvc.Entry) Invocation {
	return r.inv.newChildBelow(frame, conversation, r.options.GlobalInstruction)
}

// Sequential is an agent whose members work one after the other, each with the answers before it in view. The last
// answer is its own.
type Sequential struct {
	members []Member
	options GroupOptions
}

// NewSequential returns an agent of members, at least one.
func NewSequential(members []Member, o GroupOptions) *Sequential { return &Sequential{members, o} }

// Run implements [Agent].
func (a *Sequential) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return iterateGroup(inv, a.members, a.options, func(r groupRun) error {
		var last groupRound
		if err := r.runRound(ctx, &last, func(name string) string { return name }, !a.options.CompleteOnly); err != nil || last.interruption != nil {
			return r.endInterrupted(err, last)
		}
		if last.controlReturned {
			return r.yieldEnd(newCompletedEvent(markReturned.applyTo(last.answer)))
		}
		return r.yieldEnd(newCompletedEvent(withoutMark(last.answer)))
	})
}

// groupRound is how far the members of a group have come.
type groupRound struct {
	conversation    []agentsvc.Entry
	answer          agentsvc.Message
	answers         int
	interruption    *agentsvc.Event
	controlReturned bool // a member gave control back
	loopEnded       bool // a member has ended the loop
}

// endInterrupted ends the turn that met err or cannot go on.
func (r groupRun) endInterrupted(err error, at groupRound) error {
	if err != nil {
		return err
	}
	return r.yieldEnd(*at.interruption)
}

// runRound has each member work once, in order, until one gives control back. A member that gives it back with no more
// than a reason leaves the answer before it standing.
func (r groupRun) runRound(ctx context.Context, at *groupRound, frame func(name string) string, shown bool) error {
	if at.conversation == nil {
		at.conversation = withoutToolCalls(r.inv.Conversation)
	}
	out := func(ev agentsvc.Event) bool { return r.yield(ev, nil) }
	for i, m := range r.members {
		got, err := runSubAgent(ctx, m.Agent, r.newMemberInvocation(frame(m.Name), at.conversation), shown && i == len(r.members)-1, out)
		if err != nil {
			return err
		}
		if at.interruption = got.interruption; at.interruption != nil {
			return nil
		}
		at.controlReturned = hasMark(got.answer, markEscalated, markReturned)
		at.loopEnded = hasMark(got.answer, markExited)
		if at.answers == 0 || !hasMark(got.answer, markEscalated) {
			at.answer = got.answer
			at.answers++
		}
		if at.controlReturned {
			return nil
		}
		at.conversation = append(slices.Clip(at.conversation), quoteAgent(m.Name, got.answer))
	}
	return nil
}

// Loop is an agent whose members work one after the other, again and again, until one of them escalates or exits or
// the rounds are used up. The last answer is its own.
type Loop struct {
	members []Member
	rounds  int
	options GroupOptions
}

// NewLoop returns an agent of members, at least one, that goes round at most rounds times, or a hundred times if
// rounds is zero.
func NewLoop(members []Member, rounds int, o GroupOptions) *Loop {
	if rounds == 0 {
		rounds = maxRounds
	}
	return &Loop{members, rounds, o}
}

// Run implements [Agent].
func (a *Loop) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return iterateGroup(inv, a.members, a.options, func(r groupRun) error {
		var at groupRound
		for i := range a.rounds {
			frame := func(name string) string { return fmt.Sprintf("%s[%d]", name, i+1) }
			if err := r.runRound(ctx, &at, frame, false); err != nil || at.interruption != nil {
				return r.endInterrupted(err, at)
			}
			if at.controlReturned || at.loopEnded {
				break
			}
		}
		return r.yieldEnd(newCompletedEvent(withoutMark(at.answer)))
	})
}

// withoutMark returns m without a mark.
func withoutMark(m agentsvc.Message) agentsvc.Message {
	m.Metadata = nil
	return m
}
