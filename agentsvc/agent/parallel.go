package agent

import (
	"context"
	"iter"
	"slices"

	"stoa/agentsvc"
)

// Parallel is an agent whose members run concurrently, each on the same conversation. Its answer consists of theirs,
// each under the member's name, in the order of the members.
type Parallel struct {
	members []Member
	options GroupOptions
}

// NewParallel returns a parallel agent. It needs at least one member.
func NewParallel(members []Member, o GroupOptions) *Parallel { return &Parallel{members, o} }

// Run implements [Agent]. If a member's turn is interrupted, e.g. by an approval, the others run to their end first;
// the next attempt returns their recorded answers and resumes the interrupted member only.
func (p *Parallel) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return iterateGroup(inv, p.members, p.options, func(r groupRun) error {
		// Clip makes each member's append copy instead of writing to the shared array.
		conversation := slices.Clip(withoutToolCalls(inv.Conversation))
		// Each goroutine writes its own element only; runParallel returns after all have ended.
		got := make([]agentOutcome, len(p.members))
		err := runParallel(ctx, r.inv.slots, len(p.members), r.yield, func(ctx context.Context, i int, out emitFunc) (err error) {
			m := p.members[i]
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
			answer.Parts = append(answer.Parts, withTitle(i, p.members[i].Name, o.answer)...)
			if hasMark(o.answer, markEscalated, markReturned) {
				answer = markReturned.applyTo(answer)
			}
		}
		return r.yieldEnd(newCompletedEvent(answer))
	})
}

// withTitle returns the parts of the i-th member's answer, preceded by a title part with the member's name.
func withTitle(i int, name string, m agentsvc.Message) []agentsvc.Part {
	title := name + ":\n"
	if i > 0 {
		title = "\n\n" + title
	}
	return slices.Concat([]agentsvc.Part{agentsvc.TextPart(title)}, m.Parts)
}
