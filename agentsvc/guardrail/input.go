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
	name string
	rule Rule
	look func(w *pattern.Work, parts []agentsvc.Part) (modified []agentsvc.Part, strikes bool)
}

func newInput(o Input) (input, error) {
	in := input{collectAll: o.CollectAll}
	if s := o.Sanitizer; s != nil {
		in.checks = append(in.checks, inputCheck{"input.sanitizer", Rule{Modify, "low"}, func(w *pattern.Work, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			out := s.clean(w, parts)
			return out, !reflect.DeepEqual(out, parts)
		}})
	}
	if l := o.Length; l != nil {
		rule := l.orDefault(Block)
		if rule.Action == Modify && l.Min > 0 {
			return input{}, invalid("input.length.min_length", "cannot go with the action modify: what is too short cannot be lengthened")
		}
		in.checks = append(in.checks, inputCheck{"input.length", rule, l.look})
	}
	if o.Injection != nil {
		i, err := newInjection(o.Injection)
		if err != nil {
			return input{}, err
		}
		in.checks = append(in.checks, inputCheck{"input.injection", i.Rule, func(w *pattern.Work, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			if !i.anywhere(w, parts) {
				return parts, false
			}
			if i.Action != Modify {
				return parts, true
			}
			return i.clean(w, parts), true
		}})
	}
	return in, nil
}

func (l *Length) look(_ *pattern.Work, parts []agentsvc.Part) ([]agentsvc.Part, bool) {
	n := 0
	for _, text := range textsOf(parts) {
		n += utf8.RuneCountInString(text)
	}
	switch {
	case l.Max > 0 && n > l.Max:
		return cut(parts, l.Max), true
	case n < l.Min:
		return parts, true
	}
	return parts, false
}

// Verdict is what became of a conversation.
type Verdict struct {
	// Conversation is what the model may read.
	Conversation []agentsvc.Entry
	// Refusal, if there is one, says that the last message is blocked: then the model is not to be asked.
	Refusal  string
	Findings []Finding
}

// Input judges the messages of a caller in a conversation. The last one is what the model is asked now; the earlier
// ones were asked before, and what was done to them then is done again: the model reads them modified, or a note where
// they were blocked. Findings are those of the last message, if nothing has followed it yet or if it is blocked. An error says
// why the context ended.
func (g *Guardrail) Input(ctx context.Context, talk []agentsvc.Entry) (Verdict, error) {
	last := len(talk) - 1
	for last >= 0 && !isCallers(talk[last]) {
		last--
	}
	if len(g.input.checks) == 0 || last < 0 {
		return Verdict{Conversation: talk}, nil
	}
	work := conversationWork(ctx)
	work.Begin()
	defer work.End()
	parts, found := g.message(work.Part(0), talk[last].Message.Parts)
	if checks := blocking(found); checks != "" {
		return Verdict{Refusal: g.withheld("The message was", checks), Findings: found}, ctx.Err()
	}
	r := reading{talk: talk}
	g.past(work, &r, last)
	if len(found) > 0 && !g.shadow {
		r.set(last, parts)
	}
	v := Verdict{Conversation: r.talk}
	if last == len(talk)-1 {
		v.Findings = found
	}
	return v, ctx.Err()
}

// Past returns what may be read of a conversation in which everything was asked before: the messages of callers as the
// checks modify them, and a note in the place of each that they block. An error says why the context ended.
func (g *Guardrail) Past(ctx context.Context, talk []agentsvc.Entry) ([]agentsvc.Entry, error) {
	r := reading{talk: talk}
	work := conversationWork(ctx)
	work.Begin()
	defer work.End()
	g.past(work, &r, len(talk))
	return r.talk, ctx.Err()
}

// Read returns what may be read of a text that a caller sent before, and whether anything may.
func (g *Guardrail) Read(ctx context.Context, text string) (string, bool) {
	work := pattern.NewWork(ctx, 0)
	work.Begin()
	defer work.End()
	parts, found := g.message(work, []agentsvc.Part{agentsvc.TextPart(text)})
	if g.shadow {
		return text, true
	}
	return agentsvc.Message{Parts: parts}.Text(), blocking(found) == "" && ctx.Err() == nil
}

// past has the messages of callers before an entry read as they were judged then.
func (g *Guardrail) past(w *pattern.Work, r *reading, before int) {
	for i, e := range r.talk[:before] {
		if !isCallers(e) {
			continue
		}
		parts, found := g.message(w.Part(0), e.Message.Parts)
		if len(found) == 0 || g.shadow {
			continue
		}
		if checks := blocking(found); checks != "" {
			parts = []agentsvc.Part{agentsvc.TextPart("[" + g.withheld("The message was", checks) + "]")}
		}
		r.set(i, parts)
	}
}

// reading is a conversation as it is read. The one it was made of stays as it is.
type reading struct {
	talk   []agentsvc.Entry
	cloned bool
}

// set puts other parts into a message.
func (r *reading) set(i int, parts []agentsvc.Part) {
	if !r.cloned {
		r.talk, r.cloned = slices.Clone(r.talk), true
	}
	msg := *r.talk[i].Message
	msg.Parts = parts
	r.talk[i].Message = &msg
}

// isCallers reports whether e is what a caller sent, if only as the words of another. What an agent tells its own model in a
// caller's place has no id, which every message that was sent has.
func isCallers(e agentsvc.Entry) bool {
	return e.Quoted || e.Message != nil && e.Message.Role == agentsvc.RoleUser && e.Message.ID != ""
}

// message judges one message and returns its parts as they are after what modifies them. A check that takes more work than is
// allowed counts as if it had struck, and blocks where it would have changed something: nobody knows what it would have found.
func (g *Guardrail) message(w *pattern.Work, parts []agentsvc.Part) ([]agentsvc.Part, []Finding) {
	var found []Finding
	for _, c := range g.input.checks {
		modified, strikes := c.look(w, parts)
		if err := w.Err(); err != nil {
			if errors.Is(err, pattern.ErrTooMuch) {
				found = append(found, g.unjudged(c.name, c.rule))
			}
			return parts, found
		}
		if !strikes {
			continue
		}
		found = append(found, g.finding(c.name, c.rule))
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

// conversationWork returns the work of judging the messages of a conversation, each of which has a budget of its own. All
// together they have that of some costly ones.
func conversationWork(ctx context.Context) *pattern.Work {
	const costly = 16
	w := pattern.NewWork(ctx, 0)
	w.Widen((costly - 1) * pattern.BaseSteps)
	return w
}
