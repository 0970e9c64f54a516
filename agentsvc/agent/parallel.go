package agent

import (
	"context"
	"iter"
	"slices"

	"stoa/agentsvc"
)

// Parallel is an agent whose members work side by side, each on the same conversation. Its answer holds theirs, in the
// order of the members.
type Parallel struct {
	members []Member
	o       GroupOptions
}

// NewParallel returns an agent of members, at least one.
func NewParallel(members []Member, o GroupOptions) *Parallel { return &Parallel{members, o} }

// Run implements [Agent]. Where a member needs somebody outside, the others finish first.
func (a *Parallel) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return play(inv, a.members, a.o, func(r run) error {
		talk := slices.Clip(spoken(inv.Conversation))
		got := make([]outcome, len(a.members))
		err := gather(ctx, len(a.members), r.yield, func(ctx context.Context, i int, out emit) (err error) {
			m := a.members[i]
			got[i], err = delegate(ctx, m.Agent, r.child(m.Name, talk), false, out)
			return err
		})
		if err != nil {
			return err
		}
		answer := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: inv.Task, Role: agentsvc.RoleAgent}
		for i, o := range got {
			if o.rest != nil {
				return r.end(*o.rest)
			}
			answer.Parts = append(answer.Parts, titled(i, a.members[i].Name, o.answer)...)
			if marked(o.answer, escalated, handed) {
				answer = handed.on(answer)
			}
		}
		return r.end(completed(answer))
	})
}

// titled returns the parts of the i-th member's answer under its name.
func titled(i int, name string, m agentsvc.Message) []agentsvc.Part {
	title := name + ":\n"
	if i > 0 {
		title = "\n\n" + title
	}
	return slices.Concat([]agentsvc.Part{agentsvc.TextPart(title)}, m.Parts)
}
