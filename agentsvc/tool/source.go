package tool

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"stoa/agentsvc"
)

// Source is where tools come from that are not known before somebody asks: a server with tools of its own. It is safe
// for concurrent use.
type Source interface {
	// Name says in messages whose tools they are.
	Name() string
	// Tools returns the tools there are now. They are comparable, and as long as a tool has not changed it is the same
	// value. It returns an [*UnavailableError] if they cannot be known.
	Tools(ctx context.Context) ([]Tool, error)
}

// UnavailableError says that the tools of a source cannot be known at the moment. Its text holds nothing secret.
type UnavailableError struct {
	Source string // its name
	Reason string
}

// Error returns one line that a caller may read.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the tools of %s are not available: %s", e.Source, e.Reason)
}

// SourceWith returns src with its tools under settings.
func SourceWith(src Source, settings Settings) Source { return settledSource{src, settings} }

// settledSource is a source whose tools are under settings.
type settledSource struct {
	Source
	settings Settings
}

// Tools implements [Source].
func (s settledSource) Tools(ctx context.Context) ([]Tool, error) {
	tools, err := s.Source.Tools(ctx)
	under := make([]Tool, len(tools))
	for i, t := range tools {
		under[i] = With(t, s.settings)
	}
	return under, err
}

// live is what a set's sources held when they were last asked, and the set that came of it.
type live struct {
	tools [][]Tool // by source
	set   *Set
}

// Live returns the set with the tools that its sources have now; without sources that is the set itself. It is asked
// for once a turn, so that the turn sees one set from its start to its end. It returns an [*UnavailableError] if a
// source does not answer, and an [agentsvc.InvalidError] if two tools of different origin share a name. A source's
// tool that no model could call, for its name or its schema, is left out and logged.
func (s *Set) Live(ctx context.Context) (*Set, error) {
	if len(s.opts.Sources) == 0 {
		return s, nil
	}
	tools := make([][]Tool, len(s.opts.Sources))
	for i, src := range s.opts.Sources {
		var err error
		if tools[i], err = src.Tools(ctx); err != nil {
			return nil, err
		}
	}
	if last := s.live.Load(); last != nil && slices.EqualFunc(last.tools, tools, slices.Equal[[]Tool]) {
		return last.set, nil
	}
	set := &Set{opts: s.opts, specs: slices.Clip(s.specs), tools: make(map[string]entry, len(s.tools))}
	set.opts.Sources = nil
	for name, t := range s.tools {
		set.tools[name] = t
	}
	for i, src := range s.opts.Sources {
		for _, t := range tools[i] {
			if err := set.join(ctx, src, t); err != nil {
				return nil, err
			}
		}
	}
	s.live.Store(&live{tools, set})
	return set, nil
}

// callable are the names that every model accepts.
var callable = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// join adds a tool of a source.
func (s *Set) join(ctx context.Context, src Source, t Tool) error {
	name := t.Spec().Name
	other, taken := s.tools[name]
	if taken && other.origin != src.Name() {
		return agentsvc.Invalid(name, "is the name of two tools, one of %s and one of %s", other.origin, src.Name())
	}
	var why string
	switch {
	case taken:
		why = "its server has two of this name"
	case !callable.MatchString(name):
		why = "a name is 1 to 64 letters, digits, '_' or '-': models accept no other"
	default:
		if err := s.add(src.Name(), t); err != nil {
			why = err.Error()
		}
	}
	if why != "" {
		s.opts.Logger.WarnContext(ctx, "a tool is left out", "source", src.Name(), "tool", name, "reason", why)
	}
	return nil
}
