package tool

import (
	"context"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc/pattern"
)

// schemaMeter bounds what it takes to hold a value to a schema. Both are a tenant's or a model's: a schema of some lines whose
// parts refer to each other twice takes time that doubles with each level of a value, and its patterns match any text. The
// library has no bound of its own, so each part of the schema counts when it was applied, and the patterns count their steps.
// Where they are too many, it is left by a panic that bounded recovers.
type schemaMeter struct {
	mu   sync.Mutex // one value at a time is held to a schema: the compiled parts know the meter, and no call
	work *pattern.StepBudget
}

// keywordSteps is what it takes to apply a keyword, or one item of one, to a value: less than a microsecond.
const keywordSteps = 16

// attachMeter has everything that c compiles be counted.
func attachMeter(c *jsonschema.Compiler) *schemaMeter {
	m, sizes, total := &schemaMeter{}, map[string]bool{}, 0
	c.UseRegexpEngine(func(expr string) (jsonschema.Regexp, error) {
		p, err := pattern.Compile(expr)
		if err != nil {
			return nil, err
		}
		if !sizes[expr] {
			sizes[expr] = true
			total += pattern.SumInstructions(expr)
		}
		if total > pattern.MaxTotalInstructions {
			return nil, fmt.Errorf("the patterns %w", pattern.TotalSizeError(total))
		}
		return meteredPattern{p, expr, m}, nil
	})
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "stoa://meter", Compile: func(_ *jsonschema.CompilerContext, keywords map[string]any) (jsonschema.SchemaExt, error) {
		steps := keywordSteps
		for _, v := range keywords {
			steps += keywordSteps
			switch v := v.(type) {
			case []any:
				steps += keywordSteps * len(v)
			case map[string]any:
				steps += keywordSteps * len(v)
			}
		}
		return meteredKeywords{m, steps}, nil
	}})
	c.AssertVocabs()
	return m
}

// workLimitPanic is what spend panics with.
type workLimitPanic struct{ error }

// runWithWorkLimit calls validate with the budget of a text of size bytes.
func (m *schemaMeter) runWithWorkLimit(ctx context.Context, size int, validate func() error) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work = pattern.NewStepBudget(context.WithoutCancel(ctx), size) // it ends by itself before anyone would cancel it
	m.work.BeginComputation()
	defer m.work.EndComputation()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case workLimitPanic:
			err = fmt.Errorf("the value cannot be held to the schema: %w", r.error)
		default:
			panic(r)
		}
	}()
	return validate()
}

func (m *schemaMeter) spendSteps(steps int) {
	if m.work == nil {
		return // the schema is being compiled
	}
	if err := m.work.SpendSteps(steps); err != nil {
		panic(workLimitPanic{err})
	}
}

// meteredKeywords is an object of a schema. It says nothing about a value.
type meteredKeywords struct {
	meter *schemaMeter
	steps int
}

// Validate implements [jsonschema.SchemaExt].
func (p meteredKeywords) Validate(*jsonschema.ValidatorContext, any) { p.meter.spendSteps(p.steps) }

// meteredPattern is a pattern of a schema.
type meteredPattern struct {
	*pattern.Pattern
	expr  string
	meter *schemaMeter
}

// String implements [jsonschema.Regexp].
func (p meteredPattern) String() string { return p.expr }

// MatchString implements [jsonschema.Regexp].
func (p meteredPattern) MatchString(s string) bool {
	p.meter.spendSteps(1)
	found, err := p.Match(p.meter.work, s)
	if err != nil {
		panic(workLimitPanic{err})
	}
	return found
}
