// Package scripted implements llm.Provider with rules instead of a model: it needs no network, costs nothing and always
// gives the same answer. The quick start, demonstrations, load tests and tests of a tenant's own configuration use it,
// through the same interface and decorators as the vendors' models.
//
// A script is a list of [Rule]s; the first one that matches determines the answer. A rule looks at the matching
// message: the tool result that the conversation ends with (the last of several), else the last user message. [New]
// checks and compiles a script; [Provider.Stream] finds the rule and an answerWriter yields its items.
//
// Scripts are a tenant's configuration: matching is bounded by a pattern.StepBudget, and the answer by the request's
// size.
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

// Options are the names of the model and its script. Without rules it answers "You said: " and the user's text.
type Options struct {
	// App is the app whose share of the processors the script's patterns use, see package processor.
	App string
	// Name is the provider's name in errors and usage, "scripted" if empty.
	Name string
	// Model is the model's name in usage, "scripted" if empty.
	Model  string
	Script []Rule
}

// Provider plays one script. It is read-only and safe for concurrent use.
type Provider struct {
	app, name, model string
	// rules are in the order of the script: the first match wins.
	rules []compiledRule
}

// New returns a provider that plays opts.Script. The error joins an error with [agentsvc.CodeInvalid] for each mistake,
// with a field that starts with "script".
func New(opts Options) (*Provider, error) {
	script := opts.Script
	if len(script) == 0 {
		script = []Rule{{Then: []Item{{Text: "You said: {{text}}"}}}}
	}
	p := &Provider{app: opts.App, name: cmp.Or(opts.Name, "scripted"), model: cmp.Or(opts.Model, "scripted")}
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

// patternWorkFactor is the step budget of a call in multiples of the usual cost of matching one pattern, because a
// script has several rules.
const patternWorkFactor = 4

// Stream yields the answer of the first rule that matches. Each chunk of text is a word with the space after it. If no
// rule matches, the answer is empty.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		input := newRuleInput(req.Conversation)
		a := &answerWriter{ctx: ctx, yield: yield, req: req, provider: p.name, remainingBytes: req.ByteLimit()}
		a.usage = agentsvc.Usage{Provider: p.name, Model: p.model, InputTokens: countInputTokens(req)}
		work := pattern.NewStepBudget(ctx, p.app, patternWorkFactor*(len(input.text)+len(input.messageID)))
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
		// No rule matched: an empty answer, with the usage of the input.
		a.writeEnd(llm.StopEnd)
	}
}
