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

// Input says how the messages of callers are checked: by the sanitizer, then by length, then for injections.
type Input struct {
	// CollectAll has every check look at a message, whatever the others say. Otherwise the first that blocks ends it.
	CollectAll bool
	Sanitizer  *Sanitizer
	Length     *Length
	Injection  *Injection
}

// Length bounds the characters of a message, those of all its texts together.
type Length struct {
	Rule         // Block if no action is set
	Min, Max int // 0 = no bound
}

// input is an [Input] that was checked.
type input struct {
	collectAll bool
	checks     []inputCheck
}

// inputCheck looks at the parts of a message. It reports whether it strikes, and returns the parts as they are to be
// if it modifies them. Neither holds where the work has failed.
type inputCheck struct {
	name     string
	rule     Rule
	evaluate func(w *pattern.StepBudget, parts []agentsvc.Part) (modified []agentsvc.Part, strikes bool)
}

func newInput(o Input) (input, error) {
	in := input{collectAll: o.CollectAll}
	if s := o.Sanitizer; s != nil {
		in.checks = append(in.checks, inputCheck{"input.sanitizer", Rule{Modify, "low"}, func(w *pattern.StepBudget, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			out := s.cleanParts(w, parts)
			return out, !reflect.DeepEqual(out, parts)
		}})
	}
	if l := o.Length; l != nil {
		rule := l.withDefault(Block)
		if rule.Action == Modify && l.Min > 0 {
			return input{}, newInvalidError("input.length.min_length", "cannot go with the action modify: what is too short cannot be lengthened")
		}
		in.checks = append(in.checks, inputCheck{"input.length", rule, l.evaluateLength})
	}
	if o.Injection != nil {
		i, err := newInjection(o.Injection)
		if err != nil {
			return input{}, err
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
	return in, nil
}

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

// Result is what became of a conversation.
type Result struct {
	// Conversation is what the model may read.
	Conversation []agentsvc.Entry
	// Refusal, if there is one, says that the last message is blocked: then the model is not to be asked.
	Refusal  string
	Findings []Finding
}

// EvaluateInput judges the messages of a caller in a conversation. The last one is what the model is asked now; the earlier
// ones were asked before, and what was done to them then is done again: the model reads them modified, or a note where
// they were blocked. Findings are those of the last message, if nothing has followed it yet or if it is blocked. An error says
// why the context ended.
func (g *Guardrail) EvaluateInput(ctx context.Context, conversation []agentsvc.Entry) (Result, error) {
	last := len(conversation) - 1
	for last >= 0 && !isCallerMessage(conversation[last]) {
		last--
	}
	if len(g.input.checks) == 0 || last < 0 {
		return Result{Conversation: conversation}, nil
	}
	work := newConversationWork(ctx)
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

// EvaluateHistory returns what may be read of a conversation in which everything was asked before: the messages of callers as the
// checks modify them, and a note in the place of each that they block. An error says why the context ended.
func (g *Guardrail) EvaluateHistory(ctx context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, error) {
	r := rewrittenConversation{entries: conversation}
	work := newConversationWork(ctx)
	work.BeginComputation()
	defer work.EndComputation()
	g.rewriteHistory(work, &r, len(conversation))
	return r.entries, ctx.Err()
}

// EvaluateText returns what may be read of a text that a caller sent before, and whether anything may.
func (g *Guardrail) EvaluateText(ctx context.Context, text string) (string, bool) {
	work := pattern.NewStepBudget(ctx, 0)
	work.BeginComputation()
	defer work.EndComputation()
	parts, found := g.evaluateMessage(work, []agentsvc.Part{agentsvc.TextPart(text)})
	if g.shadow {
		return text, true
	}
	return agentsvc.Message{Parts: parts}.Text(), listBlockingChecks(found) == "" && ctx.Err() == nil
}

// rewriteHistory has the messages of callers before an entry read as they were judged then.
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

// rewrittenConversation is a conversation as it is read. The one it was made of stays as it is.
type rewrittenConversation struct {
	entries []agentsvc.Entry
	cloned  bool
}

// setParts puts other parts into a message.
func (r *rewrittenConversation) setParts(i int, parts []agentsvc.Part) {
	if !r.cloned {
		r.entries, r.cloned = slices.Clone(r.entries), true
	}
	msg := *r.entries[i].Message
	msg.Parts = parts
	r.entries[i].Message = &msg
}

// isCallerMessage reports whether e is what a caller sent, if only as the words of another. What an agent tells its own model in a
// caller's place has no id, which every message that was sent has.
func isCallerMessage(e agentsvc.Entry) bool {
	return e.Quoted || e.Message != nil && e.Message.Role == agentsvc.RoleUser && e.Message.ID != ""
}

// evaluateMessage judges one message and returns its parts as they are after what modifies them. A check that takes more work than is
// allowed counts as if it had struck, and blocks where it would have changed something: nobody knows what it would have found.
func (g *Guardrail) evaluateMessage(w *pattern.StepBudget, parts []agentsvc.Part) ([]agentsvc.Part, []Finding) {
	var found []Finding
	for _, c := range g.input.checks {
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

// newConversationWork returns the work of judging the messages of a conversation, each of which has a budget of its own. All
// together they have that of some costly ones.
func newConversationWork(ctx context.Context) *pattern.StepBudget {
	const costly = 16
	w := pattern.NewStepBudget(ctx, 0)
	w.AddSteps((costly - 1) * pattern.BaseSteps)
	return w
}
