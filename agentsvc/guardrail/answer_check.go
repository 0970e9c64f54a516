package guardrail

import (
	"context"
	"errors"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Output configures the checks of answers.
type Output struct {
	// CollectAll runs all checks over the whole answer before any of it is shown. Otherwise the answer is shown as it
	// arrives, up to the first part that blocks.
	CollectAll bool
	PII        *PII
	Content    *Content
}

// output is a validated [Output].
type output struct {
	collectAll bool
	detectors  []detector
}

// newOutput validates o. The detectors are in the order PII, Content: where matches begin at the same place, the first
// one's rule is applied first.
func newOutput(o Output, key []byte) (output, error) {
	out := output{collectAll: o.CollectAll}
	var errs []error
	if o.PII != nil {
		list, err := o.PII.newDetectors(key)
		errs = append(errs, err)
		out.detectors = append(out.detectors, list...)
	}
	if o.Content != nil {
		list, err := o.Content.newDetectors()
		errs = append(errs, err)
		out.detectors = append(out.detectors, list...)
	}
	return out, errors.Join(errs...)
}

// maxAnswerBytes bounds, in bytes, an answer that is buffered as a whole (CollectAll). A longer one is blocked.
const maxAnswerBytes = 1 << 20

// AnswerCheck checks one answer of a model while it arrives: its text and the texts of its artifacts. What it allows
// does not depend on the pieces in which a text arrives. After each call, the caller shows what the call returned;
// after the last piece it calls EndAnswer. It is not safe for concurrent use.
type AnswerCheck struct {
	guardrail *Guardrail
	// work is the budget of the whole answer. It grows with each piece.
	work      *pattern.StepBudget
	text      *textCheck
	artifacts []*artifactCheck
	// found holds one finding for each check.
	found []Finding
	// textAllowed reports that some text was allowed, which the notice about the rest depends on.
	textAllowed bool
	// blocked reports that the answer was blocked: nothing more is allowed.
	blocked bool

	// buffered reports that nothing is allowed before the end.
	buffered bool
	// buffer is what would have been allowed so far.
	buffer AllowedOutput
	// bytesRead is the size of the pieces in buffered mode, for maxAnswerBytes.
	bytesRead int
}

// AllowedOutput is a part of an answer that may be shown.
type AllowedOutput struct {
	Text      string
	Artifacts []agentsvc.ArtifactUpdate
}

// BuffersAnswer reports whether no part of an answer is allowed before its end.
func (g *Guardrail) BuffersAnswer() bool {
	return g.output.collectAll && !g.shadow && len(g.output.detectors) > 0
}

// NewAnswerCheck returns the check of one answer. When ctx has ended, nothing is allowed any more.
func (g *Guardrail) NewAnswerCheck(ctx context.Context) *AnswerCheck {
	a := &AnswerCheck{guardrail: g, work: pattern.NewStepBudget(ctx, g.app, 0), buffered: g.BuffersAnswer()}
	a.text = a.newTextCheck()
	return a
}

// newTextCheck returns the check of one of the answer's texts.
func (a *AnswerCheck) newTextCheck() *textCheck {
	return newTextCheck(a.work, a.guardrail.output, a.guardrail.shadow, a.addFinding)
}

// addFinding adds the finding of a detector, unless an equal one exists.
func (a *AnswerCheck) addFinding(d *detector, unjudged bool) {
	f := a.guardrail.newFinding(d.check, d.rule)
	if unjudged {
		f = a.guardrail.newUnevaluatedFinding(d.check, d.rule)
	}
	if !slices.Contains(a.found, f) {
		a.found = append(a.found, f)
	}
}

// CheckText processes the next piece of the answer's text and returns what is allowed by now.
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

// CheckArtifact processes an update of one of the answer's artifacts and returns what is allowed by now. If the
// artifact blocks, the text received before it is still returned, as far as it is allowed.
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
		p = AllowedOutput{Text: a.text.endText()} // the text before the artifact
	}
	return a.allowOutput(p, x.blocked || a.text.blocked, size)
}

// EndAnswer processes the end of the answer and returns its allowed rest, in buffered mode all of it.
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

// IsBlocked reports whether the answer was blocked. The last output then ends with a notice, unless the context ended.
func (a *AnswerCheck) IsBlocked() bool { return a.blocked }

// Err returns the context's error if it ended during the check, else nil. The answer then counts as blocked, without a
// finding.
func (a *AnswerCheck) Err() error {
	if err := a.work.Err(); !errors.Is(err, pattern.ErrTooManySteps) {
		return err
	}
	return nil
}

// Findings returns the findings so far, without duplicates.
func (a *AnswerCheck) Findings() []Finding { return a.found }

// allowOutput returns what to show of p: p itself, p with a notice if block is set, or nothing in buffered mode or
// after the end of the context. size is that of the piece, in bytes.
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

// bufferOutput appends p to the buffer.
func (a *AnswerCheck) bufferOutput(p AllowedOutput) {
	a.buffer.Text += p.Text
	a.buffer.Artifacts = append(a.buffer.Artifacts, p.Artifacts...)
}
