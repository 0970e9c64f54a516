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
	work *pattern.Work
}

// partSteps is what it takes to apply a keyword, or one item of one, to a value: less than a microsecond.
const partSteps = 16

// meterOf has everything that c compiles be counted.
func meterOf(c *jsonschema.Compiler) *schemaMeter {
	m, sizes, total := &schemaMeter{}, map[string]bool{}, 0
	c.UseRegexpEngine(func(expr string) (jsonschema.Regexp, error) {
		p, err := pattern.Compile(expr)
		if err != nil {
			return nil, err
		}
		if !sizes[expr] {
			sizes[expr] = true
			total += pattern.Sum(expr)
		}
		if total > pattern.MaxTotal {
			return nil, fmt.Errorf("the patterns %w", pattern.TooMany(total))
		}
		return schemaPattern{p, expr, m}, nil
	})
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "stoa://meter", Compile: func(_ *jsonschema.CompilerContext, keywords map[string]any) (jsonschema.SchemaExt, error) {
		steps := partSteps
		for _, v := range keywords {
			steps += partSteps
			switch v := v.(type) {
			case []any:
				steps += partSteps * len(v)
			case map[string]any:
				steps += partSteps * len(v)
			}
		}
		return schemaPart{m, steps}, nil
	}})
	c.AssertVocabs()
	return m
}

// tooMuch is what spend panics with.
type tooMuch struct{ error }

// bounded calls validate with the budget of a text of size bytes.
func (m *schemaMeter) bounded(ctx context.Context, size int, validate func() error) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work = pattern.NewWork(context.WithoutCancel(ctx), size) // it ends by itself before anyone would cancel it
	m.work.Begin()
	defer m.work.End()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooMuch:
			err = fmt.Errorf("the value cannot be held to the schema: %w", r.error)
		default:
			panic(r)
		}
	}()
	return validate()
}

func (m *schemaMeter) spend(steps int) {
	if m.work == nil {
		return // the schema is being compiled
	}
	if err := m.work.Spend(steps); err != nil {
		panic(tooMuch{err})
	}
}

// schemaPart is an object of a schema. It says nothing about a value.
type schemaPart struct {
	meter *schemaMeter
	steps int
}

// Validate implements [jsonschema.SchemaExt].
func (p schemaPart) Validate(*jsonschema.ValidatorContext, any) { p.meter.spend(p.steps) }

// schemaPattern is a pattern of a schema.
type schemaPattern struct {
	*pattern.Pattern
	expr  string
	meter *schemaMeter
}

// String implements [jsonschema.Regexp].
func (p schemaPattern) String() string { return p.expr }

// MatchString implements [jsonschema.Regexp].
func (p schemaPattern) MatchString(s string) bool {
	p.meter.spend(1)
	found, err := p.Match(p.meter.work, s)
	if err != nil {
		panic(tooMuch{err})
	}
	return found
}
