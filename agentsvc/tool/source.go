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
	// ListTools returns the tools there are now. They are comparable, and as long as a tool has not changed it is the same
	// value. It returns an [*UnavailableError] if they cannot be known.
	ListTools(ctx context.Context) ([]Tool, error)
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

// SourceWithSettings returns src with its tools under settings.
func SourceWithSettings(src Source, settings Settings) Source { return configuredSource{src, settings} }

// configuredSource is a source whose tools are under settings.
type configuredSource struct {
	Source
	settings Settings
}

// ListTools implements [Source].
func (s configuredSource) ListTools(ctx context.Context) ([]Tool, error) {
	tools, err := s.Source.ListTools(ctx)
	configured := make([]Tool, len(tools))
	for i, t := range tools {
		configured[i] = WithSettings(t, s.settings)
	}
	return configured, err
}

// liveSet is what a set's sources held when they were last asked, and the set that came of it.
type liveSet struct {
	tools [][]Tool // by source
	set   *Set
}

// LoadLiveSet returns the set with the tools that its sources have now; without sources that is the set itself. It is asked
// for once a turn, so that the turn sees one set from its start to its end. It returns an [*UnavailableError] if a
// source does not answer, and an [agentsvc.InvalidError] if two tools of different origin share a name. A source's
// tool that no model could call, for its name or its schema, is left out and logged.
func (s *Set) LoadLiveSet(ctx context.Context) (*Set, error) {
	if len(s.opts.Sources) == 0 {
		return s, nil
	}
	tools := make([][]Tool, len(s.opts.Sources))
	for i, src := range s.opts.Sources {
		var err error
		if tools[i], err = src.ListTools(ctx); err != nil {
			return nil, err
		}
	}
	if last := s.lastLive.Load(); last != nil && slices.EqualFunc(last.tools, tools, slices.Equal[[]Tool]) {
		return last.set, nil
	}
	set := &Set{opts: s.opts, specs: slices.Clip(s.specs), tools: make(map[string]toolEntry, len(s.tools))}
	set.opts.Sources = nil
	for name, t := range s.tools {
		set.tools[name] = t
	}
	for i, src := range s.opts.Sources {
		for _, t := range tools[i] {
			if err := set.addSourceTool(ctx, src, t); err != nil {
				return nil, err
			}
		}
	}
	s.lastLive.Store(&liveSet{tools, set})
	return set, nil
}

// toolNamePattern are the names that every model accepts.
var toolNamePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// addSourceTool adds a tool of a source.
func (s *Set) addSourceTool(ctx context.Context, src Source, t Tool) error {
	name := t.Spec().Name
	other, exists := s.tools[name]
	if exists && other.origin != src.Name() {
		return agentsvc.NewInvalidError(name, "is the name of two tools, one of %s and one of %s", other.origin, src.Name())
	}
	var reason string
	switch {
	case exists:
		reason = "its server has two of this name"
	case !toolNamePattern.MatchString(name):
		reason = "a name is 1 to 64 letters, digits, '_' or '-': models accept no other"
	default:
		if err := s.addTool(src.Name(), t); err != nil {
			reason = err.Error()
		}
	}
	if reason != "" {
		s.opts.Logger.WarnContext(ctx, "a tool is left out", "source", src.Name(), "tool", name, "reason", reason)
	}
	return nil
}
