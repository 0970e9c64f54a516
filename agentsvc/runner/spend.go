package runner

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// Spent is what a run has used of its models, as it stands on the log.
type Spent struct {
	Tokens int64 // since it was told last
	Turn   int64 // tokens of the whole turn so far, earlier attempts included
	First  bool  // nothing of this run was told before: what was reserved for it is to be given back
	Over   bool  // the run has ended, and is not tried again
}

// Spend is told of what a run has used, after each fact on the log that says so and at its end, and of what it had used when
// it was stopped. The log is written once, whoever writes it, so it is told once; a process that dies between the two
// tells nothing.
type Spend func(ctx context.Context, run store.Run, s Spent)

// Count has the runner tell f what runs use. It is called before the first.
func (r *Runner) Count(f Spend) { r.spend = f }

// count tells of rec, which is on the log.
func (t *turn) count(ctx context.Context, rec store.Record) {
	if t.spend == nil {
		return
	}
	s := Spent{Turn: tokens(t.used), First: !t.spent, Over: rec.End != "" && rec.End != store.Pending}
	for _, ev := range rec.Events {
		if ev.Usage != nil {
			s.Tokens += tokens(*ev.Usage)
		}
	}
	if s.Tokens == 0 && !s.Over {
		return
	}
	t.spent = true
	t.spend(ctx, *t.run, s)
}

func tokens(u agentsvc.Usage) int64 { return u.InputTokens + u.OutputTokens }
