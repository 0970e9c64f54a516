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
	options GroupOptions
}

// NewParallel returns an agent of members, at least one.
func NewParallel(members []Member, o GroupOptions) *Parallel { return &Parallel{members, o} }

// Run implements [Agent]. Where a member needs somebody outside, the others finish first.
func (a *Parallel) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return iterateGroup(inv, a.members, a.options, func(r groupRun) error {
		conversation := slices.Clip(withoutToolCalls(inv.Conversation))
		got := make([]agentOutcome, len(a.members))
		err := runParallel(ctx, len(a.members), r.yield, func(ctx context.Context, i int, out emitFunc) (err error) {
			m := a.members[i]
			got[i], err = runSubAgent(ctx, m.Agent, r.newMemberInvocation(m.Name, conversation), false, out)
			return err
		})
		if err != nil {
			return err
		}
		answer := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: inv.Task, Role: agentsvc.RoleAgent}
		for i, o := range got {
			if o.interruption != nil {
				return r.yieldEnd(*o.interruption)
			}
			answer.Parts = append(answer.Parts, withTitle(i, a.members[i].Name, o.answer)...)
			if hasMark(o.answer, markEscalated, markReturned) {
				answer = markReturned.applyTo(answer)
			}
		}
		return r.yieldEnd(newCompletedEvent(answer))
	})
}

// withTitle returns the parts of the i-th member's answer under its name.
func withTitle(i int, name string, m agentsvc.Message) []agentsvc.Part {
	title := name + ":\n"
	if i > 0 {
		title = "\n\n" + title
	}
	return slices.Concat([]agentsvc.Part{agentsvc.TextPart(title)}, m.Parts)
}
