package tool

import (
	"context"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc/pattern"
)

// schemaMeter bounds the cost of validating a value against a schema. Both come from tenants or models: in a schema of
// a few lines whose parts refer to each other twice, the time doubles with each level of the value, and its patterns
// match any text. The library has no bound, so each part of a schema spends steps when it is applied, and the patterns
// spend theirs. Beyond the budget a panic leaves the library, which runWithWorkLimit recovers: its interfaces return no
// error.
type schemaMeter struct {
	// app is the app whose share of the processors validations use, then read-only.
	app string
	// mu serialises validations against one schema: the compiled parts refer to the meter, not to a call.
	mu sync.Mutex
	// work is the budget of the present validation, guarded by mu. It is nil until the first one.
	work *pattern.StepBudget
}

// keywordSteps is the cost in steps of applying one keyword, or one item of it, to a value: less than a microsecond.
const keywordSteps = 16

// attachMeter makes c compile schemas whose parts spend steps of the returned meter. It bounds the size of all
// patterns.
func attachMeter(c *jsonschema.Compiler, app string) *schemaMeter {
	// Each expression is compiled once: a schema of 63 KB that repeats one 1,800 times took 116 MiB.
	m, compiled, total := &schemaMeter{app: app}, map[string]meteredPattern{}, 0
	c.UseRegexpEngine(func(expr string) (jsonschema.Regexp, error) {
		if p, ok := compiled[expr]; ok {
			return p, nil
		}
		if total += pattern.SumInstructions(expr); total > pattern.MaxTotalInstructions {
			return nil, fmt.Errorf("the patterns %w", pattern.TotalSizeError(total))
		}
		p, err := pattern.Compile(expr)
		if err != nil {
			return nil, err
		}
		compiled[expr] = meteredPattern{p, expr, m}
		return compiled[expr], nil
	})
	// The library compiles this extension for each object of the schema, and calls it for each value that the object is
	// applied to. So it counts applications without a change of the library.
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

// workLimitPanic is the value with which spendSteps leaves the library.
type workLimitPanic struct{ error }

// runWithWorkLimit calls validate with the budget for a text of size bytes. Other panics pass through.
func (m *schemaMeter) runWithWorkLimit(ctx context.Context, size int, validate func() error) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The end of ctx is not an error of the value. The budget ends the validation soon enough without it.
	m.work = pattern.NewStepBudget(context.WithoutCancel(ctx), m.app, size)
	m.work.BeginComputation()
	defer m.work.EndComputation()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case workLimitPanic:
			err = fmt.Errorf("the value cannot be validated against the schema: %w", r.error)
		default:
			panic(r)
		}
	}()
	return validate()
}

// spendSteps spends steps of the present validation.
func (m *schemaMeter) spendSteps(steps int) {
	if m.work == nil {
		return // the schema is being compiled
	}
	if err := m.work.SpendSteps(steps); err != nil {
		panic(workLimitPanic{err})
	}
}

// meteredKeywords is the meter's extension of one schema object. It accepts every value.
type meteredKeywords struct {
	meter *schemaMeter
	steps int
}

// Validate implements [jsonschema.SchemaExt].
func (k meteredKeywords) Validate(*jsonschema.ValidatorContext, any) { k.meter.spendSteps(k.steps) }

// meteredPattern is a pattern of a schema, matched by package pattern.
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
