package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"stoa/agentsvc"
)

// maxRounds bounds a loop that is configured without a number of rounds.
const maxRounds = 100

// GroupOptions configure an agent that consists of members. The zero value works.
type GroupOptions struct {
	// GlobalInstruction precedes the instructions of all members.
	GlobalInstruction string
	// CompleteOnly suppresses Chunk events: only whole messages are yielded.
	CompleteOnly bool
}

// groupRun is one turn of a group. The members yield through it from the goroutine that iterates over Run.
type groupRun struct {
	members []Member
	inv     Invocation
	options GroupOptions
	yield   func(agentsvc.Event, error) bool
}

// iterateGroup returns the turn of a group as an iterator that calls f when it is iterated. An error of f is yielded,
// except errStopped.
func iterateGroup(inv Invocation, members []Member, o GroupOptions, f func(r groupRun) error) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		err := f(groupRun{members, inv.withAgentSlots(), o, yield})
		if err != nil && !errors.Is(err, errStopped) {
			yield(agentsvc.Event{}, err)
		}
	}
}

// yieldEnd yields ev, which ends the turn, and returns nil.
func (r groupRun) yieldEnd(ev agentsvc.Event) error {
	r.yield(ev, nil)
	return nil
}

// newMemberInvocation returns the invocation of a member that continues conversation in the given frame.
func (r groupRun) newMemberInvocation(frame string, conversation []agentsvc.Entry) Invocation {
	return r.inv.newChildBelow(frame, conversation, r.options.GlobalInstruction)
}

// Sequential is an agent whose members run one after the other. Each one sees the answers of those before it as quoted
// user messages. The last answer is the group's.
type Sequential struct {
	members []Member
	options GroupOptions
}

// NewSequential returns a sequential agent. It needs at least one member.
func NewSequential(members []Member, o GroupOptions) *Sequential { return &Sequential{members, o} }

// Run implements [Agent].
func (s *Sequential) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return iterateGroup(inv, s.members, s.options, func(r groupRun) error {
		var last groupRound
		if err := r.runRound(ctx, &last, func(name string) string { return name }, !s.options.CompleteOnly); err != nil || last.interruption != nil {
			return r.endInterrupted(err, last)
		}
		if last.controlReturned {
			return r.yieldEnd(newCompletedEvent(markReturned.applyTo(last.answer)))
		}
		return r.yieldEnd(newCompletedEvent(withoutMark(last.answer)))
	})
}

// groupRound is the state of a group while its members run. Nothing of it is stored: after a crash the members that
// have finished return their recorded answers, which rebuilds it.
type groupRound struct {
	// conversation is the invocation's conversation without tool calls, plus the members' answers.
	conversation []agentsvc.Entry
	// answer is the group's answer so far; answers counts the answers that it was taken from.
	answer  agentsvc.Message
	answers int
	// interruption is the status with which a member's turn was interrupted; it ends the group's turn.
	interruption *agentsvc.Event
	// controlReturned reports that the last member returned control to the agent above.
	controlReturned bool
	// loopEnded reports that the last member ended its turn with exit, which ends a loop around it.
	loopEnded bool
}

// endInterrupted returns err, or ends the turn with at's interruption if err is nil.
func (r groupRun) endInterrupted(err error, at groupRound) error {
	if err != nil {
		return err
	}
	return r.yieldEnd(*at.interruption)
}

// runRound runs each member once, in order, until one returns control or is interrupted, and updates at. frame maps a
// member's name to its frame. A member that returns control with a reason only (escalate) does not replace the answer
// before it. Chunks are yielded only where shown is set, and of the last member only: its answer is the group's.
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
		// Clip makes append copy: earlier members may still refer to the shorter slice.
		at.conversation = append(slices.Clip(at.conversation), quoteAgent(m.Name, got.answer))
	}
	return nil
}

// Loop is an agent whose members run one after the other, repeatedly, until one of them escalates or exits or the
// rounds are used up. The last answer is the group's.
type Loop struct {
	members []Member
	rounds  int
	options GroupOptions
}

// NewLoop returns a loop of members, at least one, with at most the given number of rounds; 0 = maxRounds.
func NewLoop(members []Member, rounds int, o GroupOptions) *Loop {
	if rounds == 0 {
		rounds = maxRounds
	}
	return &Loop{members, rounds, o}
}

// Run implements [Agent].
func (l *Loop) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return iterateGroup(inv, l.members, l.options, func(r groupRun) error {
		var at groupRound
		for i := range l.rounds {
			// The round is part of the frame: each round has records of its own.
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

// withoutMark returns m without its turnMark, for an answer that leaves the group.
func withoutMark(m agentsvc.Message) agentsvc.Message {
	m.Metadata = nil
	return m
}
