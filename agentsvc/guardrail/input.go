package guardrail

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Input configures the checks of callers' messages. They run in the order sanitizer, length, injection; each sees the
// parts as the one before it left them.
type Input struct {
	// CollectAll runs all checks on every message. Otherwise the first check that blocks ends the evaluation.
	CollectAll bool
	Sanitizer  *Sanitizer
	Length     *Length
	Injection  *Injection
}

// lengthCheck is the name of the check of [Length].
const lengthCheck = "input.length"

// Length bounds the characters of a message, all of its texts together.
type Length struct {
	Rule         // Block if no action is set
	Min, Max int // 0 = no bound
}

// input is a validated [Input].
type input struct {
	collectAll bool
	checks     []inputCheck
}

// inputCheck is one check of a message.
type inputCheck struct {
	name string
	rule Rule
	// evaluate reports whether the check matches, and returns the parts as modified. It must not change the parts it is
	// given. If the budget fails, both results are meaningless.
	evaluate func(w *pattern.StepBudget, parts []agentsvc.Part) (modified []agentsvc.Part, strikes bool)
}

// newInput validates o and returns its checks in their order.
func newInput(o Input) (input, error) {
	in := input{collectAll: o.CollectAll}
	var errs []error
	if s := o.Sanitizer; s != nil {
		in.checks = append(in.checks, inputCheck{"input.sanitizer", Rule{Modify, "low"}, func(w *pattern.StepBudget, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			out := s.cleanParts(w, parts)
			return out, !reflect.DeepEqual(out, parts)
		}})
	}
	if l := o.Length; l != nil {
		rule := l.withDefault(Block)
		if rule.Action == Modify && l.Min > 0 {
			errs = append(errs, newInvalidError("input.length.min_length", "cannot go with the action modify: what is too short cannot be lengthened"))
		}
		in.checks = append(in.checks, inputCheck{lengthCheck, rule, l.evaluateLength})
	}
	if o.Injection != nil {
		i, err := newInjection(o.Injection)
		if err != nil {
			return input{}, errors.Join(append(errs, err)...)
		}
		in.checks = append(in.checks, inputCheck{"input.injection", i.Rule, func(w *pattern.StepBudget, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			if !i.matchesParts(w, parts) {
				return parts, false
			}
			if i.Action != Modify {
				return parts, true
			}
			return i.cleanParts(w, parts), true
		}})
	}
	return in, errors.Join(errs...)
}

// evaluateLength is the evaluate function of [Length]. A message that is too long is returned truncated.
func (l *Length) evaluateLength(_ *pattern.StepBudget, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
	n := 0
	for _, text := range collectTexts(parts) {
		n += utf8.RuneCountInString(text)
	}
	switch {
	case l.Max > 0 && n > l.Max:
		return truncateParts(parts, l.Max), true
	case n < l.Min:
		return parts, true
	}
	return parts, false
}

// Result is the outcome of evaluating a conversation.
type Result struct {
	// Conversation is what the model may read. It is a copy if anything was changed.
	Conversation []agentsvc.Entry
	// Refusal is the text to answer with if the last message is blocked, else "". The model must not be called then.
	Refusal string
	// Findings are those to record in this turn.
	Findings []Finding
}

// EvaluateInput evaluates the messages of callers in a conversation. The last one is the current one; those before it
// were evaluated in earlier turns, and the same checks are applied again, because the session stores messages
// unmodified: the model reads them modified, or a note where they were blocked. Findings are returned for the current
// message only, and only as long as nothing follows it or if it is blocked, so that a turn with several model calls
// reports them once. The error is the context's.
func (g *Guardrail) EvaluateInput(ctx context.Context, conversation []agentsvc.Entry) (Result, error) {
	last := len(conversation) - 1
	for last >= 0 && !isCallerMessage(conversation[last]) {
		last--
	}
	if len(g.input.checks) == 0 || last < 0 {
		return Result{Conversation: conversation}, nil
	}
	work := g.newConversationWork(ctx)
	work.BeginComputation()
	defer work.EndComputation()
	parts, found := g.evaluateMessage(work.NewPart(0), conversation[last].Message.Parts)
	if checks := listBlockingChecks(found); checks != "" {
		return Result{Refusal: g.newWithheldText("The message was", checks), Findings: found}, ctx.Err()
	}
	r := rewrittenConversation{entries: conversation}
	g.rewriteHistory(work, &r, last)
	if len(found) > 0 && !g.shadow {
		r.setParts(last, parts)
	}
	v := Result{Conversation: r.entries}
	if last == len(conversation)-1 {
		v.Findings = found
	}
	return v, ctx.Err()
}

// EvaluateHistory returns conversation as it may be read, where all messages were evaluated in earlier turns: modified,
// or replaced by a note if blocked. It reports no findings. The error is the context's.
func (g *Guardrail) EvaluateHistory(ctx context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, error) {
	r := rewrittenConversation{entries: conversation}
	work := g.newConversationWork(ctx)
	work.BeginComputation()
	defer work.EndComputation()
	g.rewriteHistory(work, &r, len(conversation))
	return r.entries, ctx.Err()
}

// EvaluateText returns a text of a caller as it may be read, and whether it may be read at all. It is for stored texts
// such as memories.
func (g *Guardrail) EvaluateText(ctx context.Context, text string) (string, bool) {
	work := pattern.NewStepBudget(ctx, g.app, 0)
	work.BeginComputation()
	defer work.EndComputation()
	parts, found := g.evaluateMessage(work, []agentsvc.Part{agentsvc.TextPart(text)})
	if g.shadow {
		return text, true
	}
	return agentsvc.Message{Parts: parts}.Text(), listBlockingChecks(found) == "" && ctx.Err() == nil
}

// EvaluatePassage returns a passage of a document as it may be read, whether it may be read at all, and the findings. It
// is checked as a message of a caller except for its length, which is about what callers write.
func (g *Guardrail) EvaluatePassage(ctx context.Context, text string) (string, bool, []Finding) {
	work := pattern.NewStepBudget(ctx, g.app, 0)
	work.BeginComputation()
	defer work.EndComputation()
	checks := slices.DeleteFunc(slices.Clone(g.input.checks), func(c inputCheck) bool { return c.name == lengthCheck })
	parts, found := g.evaluateParts(work, checks, []agentsvc.Part{agentsvc.TextPart(text)})
	if g.shadow {
		return text, true, found
	}
	return agentsvc.Message{Parts: parts}.Text(), listBlockingChecks(found) == "" && ctx.Err() == nil, found
}

// rewriteHistory applies the checks to the callers' messages before the given index.
func (g *Guardrail) rewriteHistory(w *pattern.StepBudget, r *rewrittenConversation, before int) {
	for i, e := range r.entries[:before] {
		if !isCallerMessage(e) {
			continue
		}
		parts, found := g.evaluateMessage(w.NewPart(0), e.Message.Parts)
		if len(found) == 0 || g.shadow {
			continue
		}
		if checks := listBlockingChecks(found); checks != "" {
			parts = []agentsvc.Part{agentsvc.TextPart("[" + g.newWithheldText("The message was", checks) + "]")}
		}
		r.setParts(i, parts)
	}
}

// rewrittenConversation is a conversation that is copied when it is first changed. The original stays unchanged,
// because the session and the log share it.
type rewrittenConversation struct {
	entries []agentsvc.Entry
	cloned  bool
}

// setParts replaces the parts of the i-th entry's message.
func (r *rewrittenConversation) setParts(i int, parts []agentsvc.Part) {
	if !r.cloned {
		r.entries, r.cloned = slices.Clone(r.entries), true
	}
	msg := *r.entries[i].Message
	msg.Parts = parts
	r.entries[i].Message = &msg
}

// isCallerMessage reports whether e is a message that a caller sent, directly or quoted. A prompt that an agent writes
// to its own model in the user's role has no id, and is not checked.
func isCallerMessage(e agentsvc.Entry) bool {
	return e.Quoted || e.Message != nil && e.Message.Role == agentsvc.RoleUser && e.Message.ID != ""
}

// evaluateMessage evaluates one message and returns its parts as modified, with one finding for each check that
// matched. If the budget fails, the remaining checks do not run: exceeding it is a finding that blocks or warns, see
// newUnevaluatedFinding; the end of the context is none.
func (g *Guardrail) evaluateMessage(w *pattern.StepBudget, parts []agentsvc.Part) ([]agentsvc.Part, []Finding) {
	return g.evaluateParts(w, g.input.checks, parts)
}

// evaluateParts is evaluateMessage with some of the checks.
func (g *Guardrail) evaluateParts(w *pattern.StepBudget, checks []inputCheck, parts []agentsvc.Part) ([]agentsvc.Part, []Finding) {
	var found []Finding
	for _, c := range checks {
		modified, strikes := c.evaluate(w, parts)
		if err := w.Err(); err != nil {
			if errors.Is(err, pattern.ErrTooManySteps) {
				found = append(found, g.newUnevaluatedFinding(c.name, c.rule))
			}
			return parts, found
		}
		if !strikes {
			continue
		}
		found = append(found, g.newFinding(c.name, c.rule))
		switch c.rule.Action {
		case Modify:
			parts = modified
		case Block:
			if !g.input.collectAll {
				return parts, found
			}
		}
	}
	return parts, found
}

// newConversationWork returns the budget for a conversation. Each message has a part with a limit of its own; in total,
// the conversation may cost as much as 16 messages that use up their base budget, so that a long conversation cannot
// multiply the cost without bound.
func (g *Guardrail) newConversationWork(ctx context.Context) *pattern.StepBudget {
	const costly = 16
	w := pattern.NewStepBudget(ctx, g.app, 0)
	w.AddSteps((costly - 1) * pattern.BaseSteps)
	return w
}
