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
	rules       []compiledRule
}

// New returns a provider that plays opts.Script. An error joins an [agentsvc.InvalidError] for each mistake of it, whose
// field starts with "script".
func New(opts Options) (*Provider, error) {
	script := opts.Script
	if len(script) == 0 {
		script = []Rule{{Then: []Item{{Text: "You said: {{text}}"}}}}
	}
	p := &Provider{name: cmp.Or(opts.Name, "scripted"), model: cmp.Or(opts.Model, "scripted")}
	var errs []error
	for i, r := range script {
		compiled, err := compileRule(i, r)
		errs = append(errs, err)
		p.rules = append(p.rules, compiled)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// patternWorkFactor is how often a script may look at a text at the usual cost of a pattern; most patterns cost far less.
const patternWorkFactor = 4

// Stream plays the first rule that matches, word by word: each chunk of text is a word with the space after it. Where
// no rule matches the answer is empty.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		input := newRuleInput(req.Conversation)
		a := &answerWriter{ctx: ctx, yield: yield, req: req, provider: p.name, remainingBytes: req.ByteLimit()}
		a.usage = agentsvc.Usage{Provider: p.name, Model: p.model, InputTokens: countInputTokens(req)}
		work := pattern.NewStepBudget(ctx, patternWorkFactor*(len(input.text)+len(input.messageID)))
		for _, r := range p.rules {
			values, ok := r.matchInput(work, input)
			if err := work.Err(); err != nil {
				if errors.Is(err, pattern.ErrTooManySteps) {
					err = agentsvc.NewInvalidError("", "the patterns of the script cannot be looked for in a text of %d bytes: %v", len(input.text), err)
				}
				yield(llm.Chunk{}, err)
				return
			}
			if ok {
				a.values, a.fixedUsage = values, r.usage
				if !r.standalone || a.yieldChunk(llm.Chunk{Standalone: true}) {
					a.writeItems(r.items)
				}
				return
			}
		}
		a.writeEnd(llm.StopEnd)
	}
}
