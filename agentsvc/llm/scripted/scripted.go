// Package scripted is a language model made of rules: it needs no network, costs nothing and always answers the same.
// The quick start, demonstrations, load tests and tests of a tenant's own configuration run on it, through the same
// seam as the models of the vendors.
//
// A script is a list of rules; the first one that matches says the answer. A rule looks at the matching message: the
// tool result that the conversation ends with (of several parallel ones the last), else the last user message.
package scripted

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
)

// Options are the model's names and its script. Without rules it answers "You said: " and the user's text.
type Options struct {
	Name   string // how errors and usage call the provider, "scripted" if empty
	Model  string // "scripted" if empty
	Script []Rule
}

// Provider plays one script. It is safe for concurrent use.
type Provider struct {
	name, model string
	rules       []rule
}

// New returns a provider that plays opts.Script. An error joins an [agentsvc.InvalidError] for each mistake of it, whose
// field starts with "script".
func New(opts Options) (*Provider, error) {
	script := opts.Script
	if len(script) == 0 {
		script = []Rule{{Then: []Item{{Say: "You said: {{text}}"}}}}
	}
	p := &Provider{name: cmp.Or(opts.Name, "scripted"), model: cmp.Or(opts.Model, "scripted")}
	var errs []error
	for i, r := range script {
		compiled, err := compile(i, r)
		errs = append(errs, err)
		p.rules = append(p.rules, compiled)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// lookedAt is how often a script may look at a text at the usual cost of a pattern; most patterns cost far less.
const lookedAt = 4

// Stream plays the first rule that matches, word by word: each chunk of text is a word with the space after it. Where
// no rule matches the answer is empty.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		sc := look(req.Conversation)
		a := &answer{ctx: ctx, yield: yield, req: req, name: p.name, room: req.Bytes()}
		a.usage = agentsvc.Usage{Provider: p.name, Model: p.model, InputTokens: inputTokens(req)}
		work := pattern.NewWork(ctx, lookedAt*(len(sc.text)+len(sc.messageID)))
		for _, r := range p.rules {
			values, ok := r.match(work, sc)
			if err := work.Err(); err != nil {
				if errors.Is(err, pattern.ErrTooMuch) {
					err = agentsvc.Invalid("", "the patterns of the script cannot be looked for in a text of %d bytes: %v", len(sc.text), err)
				}
				yield(llm.Chunk{}, err)
				return
			}
			if ok {
				a.values, a.fixed = values, r.usage
				if !r.alone || a.give(llm.Chunk{Alone: true}) {
					a.play(r.items)
				}
				return
			}
		}
		a.end(llm.StopEnd)
	}
}
