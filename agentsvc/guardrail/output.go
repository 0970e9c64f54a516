package guardrail

import (
	"context"
	"errors"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Output says how answers are checked.
type Output struct {
	// CollectAll gathers what all checks find in the whole answer before anything is done; so nothing of it is seen
	// before its end. Otherwise the answer passes as it comes, up to the first part that blocks.
	CollectAll bool
	PII        *PII
	Content    *Content
}

// output is an [Output] that was checked.
type output struct {
	collectAll bool
	detectors  []detector
}

func newOutput(o Output, key []byte) (output, error) {
	out := output{collectAll: o.CollectAll}
	if o.PII != nil {
		list, err := o.PII.detectors(key)
		if err != nil {
			return output{}, err
		}
		out.detectors = append(out.detectors, list...)
	}
	if o.Content != nil {
		list, err := o.Content.detectors()
		if err != nil {
			return output{}, err
		}
		out.detectors = append(out.detectors, list...)
	}
	return out, nil
}

// maxAnswer bounds, in bytes, the answer that is kept back whole. What is longer is blocked.
const maxAnswer = 1 << 20

// Answer checks one answer of a model as it comes: its text, and the texts of its artifacts. What it lets pass does not
// depend on the pieces in which a text comes. It is not safe for concurrent use.
type Answer struct {
	g         *Guardrail
	work      *pattern.Work
	text      *text
	artifacts []*artifact
	found     []Finding
	seen      bool // some text has passed
	blocked   bool

	whole bool   // nothing passes before the end
	kept  Passed // what then would
	size  int    // of what was taken
}

// Passed is what passes of an answer.
type Passed struct {
	Text      string
	Artifacts []agentsvc.ArtifactUpdate
}

// Whole reports whether nothing of an answer passes before its end.
func (g *Guardrail) Whole() bool {
	return g.output.collectAll && !g.shadow && len(g.output.detectors) > 0
}

// Answer returns the check of one answer. Once the context has ended nothing passes any more.
func (g *Guardrail) Answer(ctx context.Context) *Answer {
	a := &Answer{g: g, work: pattern.NewWork(ctx, 0), whole: g.Whole()}
	a.text = a.newText()
	return a
}

// newText returns the check of one of the answer's texts.
func (a *Answer) newText() *text {
	return newText(a.work, a.g.output, a.g.shadow, a.note)
}

// note keeps the finding of a detector, one of each check.
func (a *Answer) note(d *detector, unjudged bool) {
	f := a.g.finding(d.check, d.rule)
	if unjudged {
		f = a.g.unjudged(d.check, d.rule)
	}
	if !slices.Contains(a.found, f) {
		a.found = append(a.found, f)
	}
}

// Text takes the next piece of the answer's text and returns what passes by now.
func (a *Answer) Text(s string) Passed {
	if a.blocked {
		return Passed{}
	}
	a.work.Begin()
	defer a.work.End()
	a.work.Grow(len(s) * len(a.g.output.detectors))
	p := Passed{Text: a.text.write(s)}
	return a.pass(p, a.text.blocked, len(s))
}

// Artifact takes an update of one of the answer's artifacts and returns what passes by now.
func (a *Answer) Artifact(u agentsvc.ArtifactUpdate) Passed {
	if a.blocked {
		return Passed{}
	}
	a.work.Begin()
	defer a.work.End()
	size := 0
	for _, s := range textsOf(u.Artifact.Parts) {
		size += len(s)
	}
	a.work.Grow((size + len(u.Artifact.Name) + len(u.Artifact.Description)) * len(a.g.output.detectors))
	x := a.artifact(u)
	p := Passed{Artifacts: x.take(u)}
	if x.blocked {
		p = Passed{Text: a.text.end()} // as far as it was before the artifact
	}
	return a.pass(p, x.blocked || a.text.blocked, size)
}

// End says that the answer is over and returns the rest of it that passes.
func (a *Answer) End() Passed {
	if a.blocked {
		return Passed{}
	}
	a.work.Begin()
	defer a.work.End()
	p := Passed{Text: a.text.end()}
	block := a.text.blocked
	for _, x := range a.artifacts {
		p.Artifacts = append(p.Artifacts, x.end()...)
		block = block || x.blocked
	}
	if !a.whole {
		return a.pass(p, block, 0)
	}
	a.keep(p)
	a.whole = false
	if checks := blocking(a.found); checks != "" {
		return a.pass(Passed{}, true, 0)
	}
	return a.kept
}

// Blocked reports whether the answer was blocked. Then what passed last ends with words that say so.
func (a *Answer) Blocked() bool { return a.blocked }

// Err returns why the context of the answer ended while it was checked. Then it counts as blocked, without a finding.
func (a *Answer) Err() error {
	if err := a.work.Err(); !errors.Is(err, pattern.ErrTooMuch) {
		return err
	}
	return nil
}

// Findings returns what was found so far, one finding for each check.
func (a *Answer) Findings() []Finding { return a.found }

// pass returns p, with the words that say so if the answer is blocked, or nothing while the answer is kept back.
func (a *Answer) pass(p Passed, block bool, size int) Passed {
	if a.Err() != nil {
		a.blocked = true
		return Passed{}
	}
	checks := blocking(a.found)
	if a.whole {
		a.size += size
		a.keep(p)
		if a.size <= maxAnswer {
			return Passed{}
		}
		p, block, checks = Passed{}, true, "it is longer than can be checked as a whole"
	}
	a.seen = a.seen || p.Text != ""
	if !block {
		return p
	}
	a.blocked, a.kept, p.Artifacts = true, Passed{}, nil
	if a.seen {
		p.Text += "\n\n" + a.g.withheld("The rest of the answer was", checks)
	} else {
		p.Text = a.g.withheld("The answer was", checks)
	}
	return p
}

func (a *Answer) keep(p Passed) {
	a.kept.Text += p.Text
	a.kept.Artifacts = append(a.kept.Artifacts, p.Artifacts...)
}
