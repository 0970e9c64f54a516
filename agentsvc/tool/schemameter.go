package tool

import (
	"context"
	"encoding/json"
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
		k := meteredKeywords{meter: m, steps: keywordSteps}
		for name, v := range keywords {
			k.steps += keywordSteps
			switch v := v.(type) {
			case []any:
				k.steps += keywordSteps * len(v)
			case map[string]any:
				k.steps += keywordSteps * len(v)
			}
			switch name {
			case "const", "enum":
				k.steps += comparisonSteps(v)
			case "uniqueItems":
				k.comparesItems = v == true
			case "minLength", "maxLength", "format", "contentEncoding", "contentMediaType":
				k.readsText = true
			}
		}
		return k, nil
	}})
	c.AssertVocabs()
	return m
}

// workLimitPanic is the value with which spendSteps leaves the library.
type workLimitPanic struct{ error }

// runWithWorkLimit calls validate with the budget for a text of size bytes. The end of ctx ends it too, with ctx's error.
// Other panics pass through.
func (m *schemaMeter) runWithWorkLimit(ctx context.Context, size int, validate func() error) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work = pattern.NewStepBudget(ctx, m.app, size)
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
	// steps are those of the keywords themselves, whatever the value.
	steps int
	// comparesItems is set if the items of an array are compared with each other, with all values in them.
	comparesItems bool
	// readsText is set if a keyword reads a text to its end. Patterns spend their own steps.
	readsText bool
}

// Validate implements [jsonschema.SchemaExt].
func (k meteredKeywords) Validate(_ *jsonschema.ValidatorContext, value any) {
	k.meter.spendSteps(k.steps + k.valueSteps(value))
}

// copiedBytesPerStep is how many bytes of a text are copied in the time of a step. The library copies a text each time it
// applies a schema to it.
const copiedBytesPerStep = 64

// valueSteps returns the steps that applying the keywords to value takes because of its size. Items and members to which
// a part of the schema is applied are spent there.
func (k meteredKeywords) valueSteps(value any) int {
	switch v := value.(type) {
	case string:
		if k.readsText {
			return len(v)
		}
		return len(v) / copiedBytesPerStep
	case []any:
		if k.comparesItems {
			return comparisonSteps(v)
		}
		return len(v)
	case map[string]any:
		return keywordSteps * len(v)
	case json.Number:
		return keywordSteps + len(v)
	}
	return 0
}

// comparisonSteps returns the steps of comparing value, with all values in it, with an equal one. Numbers are compared
// as fractions, which takes a microsecond.
func comparisonSteps(value any) int {
	steps := 1
	switch v := value.(type) {
	case string:
		steps += len(v) / copiedBytesPerStep
	case []any:
		for _, item := range v {
			steps += comparisonSteps(item)
		}
	case map[string]any:
		for name, member := range v {
			steps += keywordSteps + len(name)/copiedBytesPerStep + comparisonSteps(member)
		}
	case json.Number:
		steps += 6*keywordSteps + len(v)
	}
	return steps
}

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
