package tool

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"stoa/agentsvc"
)

// Source is a server that lists its tools at run time. Implementations are safe for concurrent use.
type Source interface {
	// Name names the source in messages.
	Name() string
	// ListTools returns the present tools, as the caller of the session sees them. They are comparable, and a tool that
	// has not changed is returned as the same value, so that the set can see whether anything changed. It returns an
	// [*UnavailableError] if they cannot be listed, or a [*CredentialError].
	ListTools(ctx context.Context, session agentsvc.SessionKey) ([]Tool, error)
}

// UnavailableError reports that a source's tools cannot be listed at the moment. Its text holds nothing secret.
type UnavailableError struct {
	Source string // the source's name
	Reason string
}

// Error returns one line for callers.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the tools of %s are not available: %s", e.Source, e.Reason)
}

// SourceWithSettings returns src with settings applied to its tools.
func SourceWithSettings(src Source, settings Settings) Source { return configuredSource{src, settings} }

// configuredSource is a source whose tools have settings.
type configuredSource struct {
	Source
	settings Settings
}

// ListTools implements [Source].
func (s configuredSource) ListTools(ctx context.Context, session agentsvc.SessionKey) ([]Tool, error) {
	tools, err := s.Source.ListTools(ctx, session)
	configured := make([]Tool, len(tools))
	for i, t := range tools {
		configured[i] = WithSettings(t, s.settings)
	}
	return configured, err
}

// liveSet is a set with the tools of sources, and the lists it was built from.
type liveSet struct {
	// tools are the sources' lists, in the order of Options.Sources.
	tools [][]Tool
	set   *Set
}

// LoadLiveSet returns a set that also has the present tools of the sources; without sources it returns s. An agent
// calls it once a turn, so that the tools do not change within a turn. It returns a source's error, or an
// [agentsvc.CodeInvalid] if tools of two origins have the same name. A source's tool that no model could call, because
// of its name or schema, is left out and logged.
func (s *Set) LoadLiveSet(ctx context.Context, session agentsvc.SessionKey) (*Set, error) {
	if len(s.opts.Sources) == 0 {
		return s, nil
	}
	tools := make([][]Tool, len(s.opts.Sources))
	for i, src := range s.opts.Sources {
		var err error
		if tools[i], err = src.ListTools(ctx, session); err != nil {
			return nil, err
		}
	}
	if last := s.lastLive.Load(); last != nil && slices.EqualFunc(last.tools, tools, slices.Equal[[]Tool]) {
		return last.set, nil
	}
	set := &Set{opts: s.opts, specs: slices.Clip(s.specs), tools: make(map[string]toolEntry, len(s.tools))}
	// The result has its sources' tools already.
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

// toolNamePattern matches the names that every vendor's API accepts.
var toolNamePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// addSourceTool adds a tool of a source, or logs why it is left out. A name of another origin is an error: leaving one
// tool out would let a server replace a configured tool, or be replaced by one.
func (s *Set) addSourceTool(ctx context.Context, src Source, t Tool) error {
	name := t.Spec().Name
	other, exists := s.tools[name]
	if exists && other.origin != src.Name() {
		return agentsvc.NewInvalidError(name, "is the name of two tools, one of %s and one of %s", other.origin, src.Name())
	}
	var reason string
	switch {
	case exists:
		reason = "its server has two tools of this name"
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
