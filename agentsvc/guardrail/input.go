package guardrail

import (
	"reflect"
	"slices"
	"unicode/utf8"

	"stoa/agentsvc"
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
// if it modifies them.
type inputCheck struct {
	name string
	rule Rule
	look func(parts []agentsvc.Part) (modified []agentsvc.Part, strikes bool)
}

func newInput(o Input) (input, error) {
	in := input{collectAll: o.CollectAll}
	if s := o.Sanitizer; s != nil {
		in.checks = append(in.checks, inputCheck{"input.sanitizer", Rule{Modify, "low"}, func(parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			out := s.clean(parts)
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
		in.checks = append(in.checks, inputCheck{"input.injection", i.Rule, func(parts []agentsvc.Part) ([]agentsvc.Part, bool) {
			if !i.anywhere(parts) {
				return parts, false
			}
			return i.clean(parts), true
		}})
	}
	return in, nil
}

func (l *Length) look(parts []agentsvc.Part) ([]agentsvc.Part, bool) {
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
// they were blocked. Findings are those of the last message, if nothing has followed it yet or if it is blocked.
func (g *Guardrail) Input(talk []agentsvc.Entry) Verdict {
	last := len(talk) - 1
	for last >= 0 && !isCallers(talk[last]) {
		last--
	}
	if len(g.input.checks) == 0 || last < 0 {
		return Verdict{Conversation: talk}
	}
	parts, found := g.message(talk[last].Message.Parts)
	if checks := blocking(found); checks != "" {
		return Verdict{Refusal: g.withheld("The message was", checks), Findings: found}
	}
	r := reading{talk: talk}
	g.past(&r, last)
	if len(found) > 0 && !g.shadow {
		r.set(last, parts)
	}
	v := Verdict{Conversation: r.talk}
	if last == len(talk)-1 {
		v.Findings = found
	}
	return v
}

// Past returns what may be read of a conversation in which everything was asked before: the messages of callers as the
// checks modify them, and a note in the place of each that they block.
func (g *Guardrail) Past(talk []agentsvc.Entry) []agentsvc.Entry {
	r := reading{talk: talk}
	g.past(&r, len(talk))
	return r.talk
}

// Read returns what may be read of a text that a caller sent before, and whether anything may.
func (g *Guardrail) Read(text string) (string, bool) {
	parts, found := g.message([]agentsvc.Part{agentsvc.TextPart(text)})
	if g.shadow {
		return text, true
	}
	return agentsvc.Message{Parts: parts}.Text(), blocking(found) == ""
}

// past has the messages of callers before an entry read as they were judged then.
func (g *Guardrail) past(r *reading, before int) {
	for i, e := range r.talk[:before] {
		if !isCallers(e) {
			continue
		}
		parts, found := g.message(e.Message.Parts)
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

// message judges one message and returns its parts as they are after what modifies them.
func (g *Guardrail) message(parts []agentsvc.Part) ([]agentsvc.Part, []Finding) {
	var found []Finding
	for _, c := range g.input.checks {
		modified, strikes := c.look(parts)
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
