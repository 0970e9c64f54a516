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
		list, err := o.PII.newDetectors(key)
		if err != nil {
			return output{}, err
		}
		out.detectors = append(out.detectors, list...)
	}
	if o.Content != nil {
		list, err := o.Content.newDetectors()
		if err != nil {
			return output{}, err
		}
		out.detectors = append(out.detectors, list...)
	}
	return out, nil
}

// maxAnswerBytes bounds, in bytes, the answer that is kept back whole. What is longer is blocked.
const maxAnswerBytes = 1 << 20

// AnswerCheck checks one answer of a model as it comes: its text, and the texts of its artifacts. What it lets pass does not
// depend on the pieces in which a text comes. It is not safe for concurrent use.
type AnswerCheck struct {
	guardrail   *Guardrail
	work        *pattern.StepBudget
	text        *textCheck
	artifacts   []*artifactCheck
	found       []Finding
	textAllowed bool // some text has passed
	blocked     bool

	buffered  bool          // nothing passes before the end
	buffer    AllowedOutput // what then would
	bytesRead int           // of what was taken
}

// AllowedOutput is what passes of an answer.
type AllowedOutput struct {
	Text      string
	Artifacts []agentsvc.ArtifactUpdate
}

// BuffersAnswer reports whether nothing of an answer passes before its end.
func (g *Guardrail) BuffersAnswer() bool {
	return g.output.collectAll && !g.shadow && len(g.output.detectors) > 0
}

// NewAnswerCheck returns the check of one answer. Once the context has ended nothing passes any more.
func (g *Guardrail) NewAnswerCheck(ctx context.Context) *AnswerCheck {
	a := &AnswerCheck{guardrail: g, work: pattern.NewStepBudget(ctx, 0), buffered: g.BuffersAnswer()}
	a.text = a.newTextCheck()
	return a
}

// newTextCheck returns the check of one of the answer's texts.
func (a *AnswerCheck) newTextCheck() *textCheck {
	return newTextCheck(a.work, a.guardrail.output, a.guardrail.shadow, a.addFinding)
}

// addFinding keeps the finding of a detector, one of each check.
func (a *AnswerCheck) addFinding(d *detector, unjudged bool) {
	f := a.guardrail.newFinding(d.check, d.rule)
	if unjudged {
		f = a.guardrail.newUnevaluatedFinding(d.check, d.rule)
	}
	if !slices.Contains(a.found, f) {
		a.found = append(a.found, f)
	}
}

// CheckText takes the next piece of the answer's text and returns what passes by now.
func (a *AnswerCheck) CheckText(s string) AllowedOutput {
	if a.blocked {
		return AllowedOutput{}
	}
	a.work.BeginComputation()
	defer a.work.EndComputation()
	a.work.AddBytes(len(s) * len(a.guardrail.output.detectors))
	p := AllowedOutput{Text: a.text.writeText(s)}
	return a.allowOutput(p, a.text.blocked, len(s))
}

// CheckArtifact takes an update of one of the answer's artifacts and returns what passes by now.
func (a *AnswerCheck) CheckArtifact(u agentsvc.ArtifactUpdate) AllowedOutput {
	if a.blocked {
		return AllowedOutput{}
	}
	a.work.BeginComputation()
	defer a.work.EndComputation()
	size := 0
	for _, s := range collectTexts(u.Artifact.Parts) {
		size += len(s)
	}
	a.work.AddBytes((size + len(u.Artifact.Name) + len(u.Artifact.Description)) * len(a.guardrail.output.detectors))
	x := a.ensureArtifactCheck(u)
	p := AllowedOutput{Artifacts: x.checkUpdate(u)}
	if x.blocked {
		p = AllowedOutput{Text: a.text.endText()} // as far as it was before the artifact
	}
	return a.allowOutput(p, x.blocked || a.text.blocked, size)
}

// EndAnswer says that the answer is over and returns the rest of it that passes.
func (a *AnswerCheck) EndAnswer() AllowedOutput {
	if a.blocked {
		return AllowedOutput{}
	}
	a.work.BeginComputation()
	defer a.work.EndComputation()
	p := AllowedOutput{Text: a.text.endText()}
	block := a.text.blocked
	for _, x := range a.artifacts {
		p.Artifacts = append(p.Artifacts, x.endArtifact()...)
		block = block || x.blocked
	}
	if !a.buffered {
		return a.allowOutput(p, block, 0)
	}
	a.bufferOutput(p)
	a.buffered = false
	if checks := listBlockingChecks(a.found); checks != "" {
		return a.allowOutput(AllowedOutput{}, true, 0)
	}
	return a.buffer
}

// IsBlocked reports whether the answer was blocked. Then what passed last ends with words that say so.
func (a *AnswerCheck) IsBlocked() bool { return a.blocked }

// Err returns why the context of the answer ended while it was checked. Then it counts as blocked, without a finding.
func (a *AnswerCheck) Err() error {
	if err := a.work.Err(); !errors.Is(err, pattern.ErrTooManySteps) {
		return err
	}
	return nil
}

// Findings returns what was found so far, one finding for each check.
func (a *AnswerCheck) Findings() []Finding { return a.found }

// allowOutput returns p, with the words that say so if the answer is blocked, or nothing while the answer is kept back.
func (a *AnswerCheck) allowOutput(p AllowedOutput, block bool, size int) AllowedOutput {
	if a.Err() != nil {
		a.blocked = true
		return AllowedOutput{}
	}
	checks := listBlockingChecks(a.found)
	if a.buffered {
		a.bytesRead += size
		a.bufferOutput(p)
		if a.bytesRead <= maxAnswerBytes {
			return AllowedOutput{}
		}
		p, block, checks = AllowedOutput{}, true, "it is longer than can be checked as a whole"
	}
	a.textAllowed = a.textAllowed || p.Text != ""
	if !block {
		return p
	}
	a.blocked, a.buffer, p.Artifacts = true, AllowedOutput{}, nil
	if a.textAllowed {
		p.Text += "\n\n" + a.guardrail.newWithheldText("The rest of the answer was", checks)
	} else {
		p.Text = a.guardrail.newWithheldText("The answer was", checks)
	}
	return p
}

func (a *AnswerCheck) bufferOutput(p AllowedOutput) {
	a.buffer.Text += p.Text
	a.buffer.Artifacts = append(a.buffer.Artifacts, p.Artifacts...)
}
