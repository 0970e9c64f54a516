package tool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"stoa/agentsvc"
)

// Options configure a [Set].
type Options struct {
	// App is the app whose share of the processors the checks of arguments use, see package processor.
	App string
	// Timeout bounds a call of a tool without a timeout of its own, 0 = 30 s.
	Timeout time.Duration
	// MaxOutput bounds a result, in characters; 0 = no bound.
	MaxOutput int
	// Sources list further tools at the start of each turn, see [Set.LoadLiveSet].
	Sources []Source
	// Decorator wraps each tool, e.g. with a guardrail; nil: none.
	Decorator func(Tool) Tool
	// Logger reports panics and tools that ignore their deadline, [slog.Default] if nil.
	Logger *slog.Logger
}

// Set holds the tools that one agent may call. It is built with a revision, then read-only except for lastLive, and
// safe for concurrent use.
type Set struct {
	opts  Options
	specs []agentsvc.ToolSpec
	tools map[string]toolEntry
	// lastLive caches the result of LoadLiveSet, so that schemas are compiled again only if a source's tools changed.
	lastLive atomic.Pointer[liveSet]
}

// toolEntry is a tool with its compiled schema and the name of its source, for errors.
type toolEntry struct {
	Tool
	schema argumentSchema
	origin string
}

// NewSet returns a set of tools. It returns an error with [agentsvc.CodeInvalid] for two tools with one name and for
// parameters that are not a JSON Schema.
func NewSet(tools []Tool, opts Options) (*Set, error) {
	if opts.Timeout == 0 {
		opts.Timeout = 30 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Set{opts: opts, tools: make(map[string]toolEntry, len(tools))}
	for _, t := range tools {
		if _, exists := s.tools[t.Spec().Name]; exists {
			return nil, agentsvc.NewInvalidError(t.Spec().Name, "is the name of two tools")
		}
		if err := s.addTool("the configuration", t); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addTool adds a tool whose name is not in the set. It returns an error with [agentsvc.CodeInvalid] for an invalid schema.
func (s *Set) addTool(origin string, t Tool) error {
	if s.opts.Decorator != nil {
		t = Decorate(t, s.opts.Decorator)
	}
	spec := t.Spec()
	if len(spec.Parameters) == 0 {
		spec.Parameters = []byte(`{"type":"object","properties":{}}`)
	}
	args, err := compileArguments(s.opts.App, spec.Parameters)
	if err != nil {
		return agentsvc.NewInvalidError(spec.Name+".parameters", "%v", err)
	}
	s.specs = append(s.specs, spec)
	s.tools[spec.Name] = toolEntry{t, args, origin}
	return nil
}

// Specs returns the descriptions of the tools for a model, in the order they were added. The caller must not change
// them.
func (s *Set) Specs() []agentsvc.ToolSpec { return s.specs }

// IsIdempotent reports whether a call of the tool with unknown outcome may be repeated. This holds for a tool that is
// not in the set too: its call has no effect.
func (s *Set) IsIdempotent(name string) bool {
	t, ok := s.tools[name]
	return !ok || t.Tool.IsIdempotent()
}

// Call runs one call and returns the result for the model. If the call failed (unknown tool, invalid arguments,
// error, panic, timeout), the result is the reason in words, with Failed set. It returns when the call's time is over
// or ctx ends, even if the tool does not. If the call lacks its caller's credential, it also returns that error. scope
// and step become those of the tool's [Call].
func (s *Set) Call(ctx context.Context, scope agentsvc.RunScope, call agentsvc.ToolCall, step string) (agentsvc.ToolResult, *CredentialError) {
	text, err := s.callWithTimeout(ctx, scope, call, step)
	if err != nil {
		text = err.Error()
	}
	var credentialErr *CredentialError
	errors.As(err, &credentialErr)
	return agentsvc.ToolResult{Call: call.ID, Name: call.Name, Text: s.trimOutput(text), Failed: err != nil}, credentialErr
}

// callWithTimeout checks a call and runs it until its time is over.
func (s *Set) callWithTimeout(ctx context.Context, scope agentsvc.RunScope, call agentsvc.ToolCall, step string) (string, error) {
	t, ok := s.tools[call.Name]
	if !ok {
		return "", s.unknownToolError(call.Name)
	}
	args := call.Arguments
	if len(args) == 0 {
		args = []byte("{}")
	}
	if err := t.schema.checkArguments(ctx, args); err != nil {
		return "", fmt.Errorf("the arguments of %s %w", call.Name, err)
	}
	// A worker that lost its lease must not start the effect: another worker continues the turn.
	if scope.Lease.Check(ctx) != nil {
		return "", fmt.Errorf("%s was not run: the call was cancelled", call.Name)
	}
	limit := callTimeout(t.Tool, s.opts.Timeout)
	callCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The buffer lets the goroutine of a tool that ignores its deadline end later, without a reader.
	done := make(chan callOutcome, 1)
	go func() { done <- s.callWithRecover(callCtx, t, Call{RunScope: scope, Step: step, Arguments: args}) }()
	var out callOutcome
	select {
	case out = <-done:
	case <-callCtx.Done():
		select {
		case out = <-done:
		default:
			s.opts.Logger.WarnContext(ctx, "a tool call has not stopped after its end", "tool", call.Name, "step", step)
			out.err = callCtx.Err()
		}
	}
	switch {
	case out.err == nil:
		return out.text, nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s was cancelled before it ended", call.Name)
	case callCtx.Err() != nil:
		return "", fmt.Errorf("%s did not end within %v and was stopped; whether it took effect is unknown", call.Name, limit)
	}
	return "", fmt.Errorf("%s: %w", call.Name, out.err)
}

// callOutcome is what a tool's Call returned.
type callOutcome struct {
	text string
	err  error
}

// errToolPanicked is the error that the model reads after a panic.
var errToolPanicked = errors.New("the tool failed with an internal error; the same call will most likely fail again")

// callWithRecover calls t and turns a panic into an error. The tool runs in a goroutine of its own, where an
// unrecovered panic would end the process.
func (s *Set) callWithRecover(ctx context.Context, t Tool, in Call) (out callOutcome) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		// The value of a panic may hold arguments or secrets, which must not be logged: only its type is, unless it is
		// an error of the runtime.
		what := fmt.Sprintf("%T", v)
		if bug, ok := v.(runtime.Error); ok {
			what = bug.Error()
		}
		s.opts.Logger.ErrorContext(ctx, "tool panicked", "tool", t.Spec().Name, "step", in.Step, "panic", what, "stack", string(debug.Stack()))
		out = callOutcome{err: errToolPanicked}
	}()
	text, err := t.Call(ctx, in)
	return callOutcome{text, err}
}

// unknownToolError returns the error for a tool that is not in the set. It lists the names, so that the model can
// correct the call.
func (s *Set) unknownToolError(name string) error {
	if len(s.specs) == 0 {
		return fmt.Errorf("there is no tool %q: no tools are offered", name)
	}
	names := make([]string, len(s.specs))
	for i, spec := range s.specs {
		names[i] = spec.Name
	}
	return fmt.Errorf("there is no tool %q; the tools are %s", name, strings.Join(names, ", "))
}

// trimOutput returns text in a form that can be stored (valid UTF-8 without NUL, which PostgreSQL refuses), cut to
// MaxOutput characters with a note.
func (s *Set) trimOutput(text string) string {
	if strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) {
		text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	}
	limit := s.opts.MaxOutput
	if limit <= 0 || len(text) <= limit {
		return text
	}
	n := 0
	for at := range text {
		if n == limit {
			return fmt.Sprintf("%s\n[cut here: these are the first %d of %d characters]", text[:at], n, n+utf8.RuneCountInString(text[at:]))
		}
		n++
	}
	return text
}
