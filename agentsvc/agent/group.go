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
	Global string // stands before the instructions of all members
	Whole  bool   // yield no chunks, only whole messages
}

// run is one turn of a group.
type run struct {
	members []Member
	inv     Invocation
	o       GroupOptions
	yield   func(agentsvc.Event, error) bool
}

// play returns the turn of a group as an iterator.
func play(inv Invocation, members []Member, o GroupOptions, f func(r run) error) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		err := f(run{members, inv, o, yield})
		if err != nil && !errors.Is(err, errStopped) {
			yield(agentsvc.Event{}, err)
		}
	}
}

// end ends the turn with ev.
func (r run) end(ev agentsvc.Event) error {
	r.yield(ev, nil)
	return nil
}

// child is the invocation of a member that goes on from talk.
func (r run) child(frame string, talk []agentsvc.Entry) Invocation {
	return r.inv.below(frame, talk, r.o.Global)
}

// Sequential is an agent whose members work one after the other, each with the answers before it in view. The last
// answer is its own.
type Sequential struct {
	members []Member
	o       GroupOptions
}

// NewSequential returns an agent of members, at least one.
func NewSequential(members []Member, o GroupOptions) *Sequential { return &Sequential{members, o} }

// Run implements [Agent].
func (a *Sequential) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return play(inv, a.members, a.o, func(r run) error {
		var last round
		if err := r.round(ctx, &last, func(name string) string { return name }, !a.o.Whole); err != nil || last.rest != nil {
			return r.over(err, last)
		}
		if last.returns {
			return r.end(completed(handed.on(last.answer)))
		}
		return r.end(completed(plain(last.answer)))
	})
}

// round is how far the members of a group have come.
type round struct {
	talk    []agentsvc.Entry
	answer  agentsvc.Message
	answers int
	rest    *agentsvc.Event
	returns bool // a member gave control back
	exits   bool // a member has ended the loop
}

// over ends the turn that met err or cannot go on.
func (r run) over(err error, at round) error {
	if err != nil {
		return err
	}
	return r.end(*at.rest)
}

// round has each member work once, in order, until one gives control back. A member that gives it back with no more
// than a reason leaves the answer before it standing.
func (r run) round(ctx context.Context, at *round, frame func(name string) string, shown bool) error {
	if at.talk == nil {
		at.talk = spoken(r.inv.Conversation)
	}
	out := func(ev agentsvc.Event) bool { return r.yield(ev, nil) }
	for i, m := range r.members {
		got, err := delegate(ctx, m.Agent, r.child(frame(m.Name), at.talk), shown && i == len(r.members)-1, out)
		if err != nil {
			return err
		}
		if at.rest = got.rest; at.rest != nil {
			return nil
		}
		at.returns = marked(got.answer, escalated, handed)
		at.exits = marked(got.answer, exited)
		if at.answers == 0 || !marked(got.answer, escalated) {
			at.answer = got.answer
			at.answers++
		}
		if at.returns {
			return nil
		}
		at.talk = append(slices.Clip(at.talk), heard(m.Name, got.answer))
	}
	return nil
}

// Loop is an agent whose members work one after the other, again and again, until one of them escalates or exits or
// the rounds are used up. The last answer is its own.
type Loop struct {
	members []Member
	rounds  int
	o       GroupOptions
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
	return play(inv, a.members, a.o, func(r run) error {
		var at round
		for i := range a.rounds {
			frame := func(name string) string { return fmt.Sprintf("%s[%d]", name, i+1) }
			if err := r.round(ctx, &at, frame, false); err != nil || at.rest != nil {
				return r.over(err, at)
			}
			if at.returns || at.exits {
				break
			}
		}
		return r.end(completed(plain(at.answer)))
	})
}

// plain returns m without a mark.
func plain(m agentsvc.Message) agentsvc.Message {
	m.Metadata = nil
	return m
}
