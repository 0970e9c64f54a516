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

// Options bound the calls of a [Set].
type Options struct {
	Timeout   time.Duration   // of one call of a tool that has no time of its own, 30 s if zero
	MaxOutput int             // characters of a result that the model reads, unlimited if zero
	Sources   []Source        // have tools as well, which [Set.LoadLiveSet] looks up
	Decorator func(Tool) Tool // what to make of each tool, nil = nothing
	Logger    *slog.Logger    // told of panics and of tools that ignore their deadline; [slog.Default] if nil
}

// Set holds the tools that one agent may call. It is safe for concurrent use.
type Set struct {
	opts     Options
	specs    []agentsvc.ToolSpec
	tools    map[string]toolEntry
	lastLive atomic.Pointer[liveSet]
}

// toolEntry is a tool with its compiled schema and where it comes from.
type toolEntry struct {
	Tool
	schema argumentSchema
	origin string
}

// NewSet returns a set of tools. It returns an [agentsvc.InvalidError] for two tools of one name and for parameters
// that are no JSON Schema of an object.
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

// addTool puts a tool of a new name in. It returns an [agentsvc.InvalidError] for parameters that are no schema.
func (s *Set) addTool(origin string, t Tool) error {
	if s.opts.Decorator != nil {
		t = Decorate(t, s.opts.Decorator)
	}
	spec := t.Spec()
	if len(spec.Parameters) == 0 {
		spec.Parameters = []byte(`{"type":"object","properties":{}}`)
	}
	args, err := compileArguments(spec.Parameters)
	if err != nil {
		return agentsvc.NewInvalidError(spec.Name+".parameters", "%v", err)
	}
	s.specs = append(s.specs, spec)
	s.tools[spec.Name] = toolEntry{t, args, origin}
	return nil
}

// Specs describes the tools to a model, in the order they were given. The caller must not change them.
func (s *Set) Specs() []agentsvc.ToolSpec { return s.specs }

// IsIdempotent reports whether the call of the tool of this name may simply run again. A tool the set does not hold may:
// its call does nothing.
func (s *Set) IsIdempotent(name string) bool {
	t, ok := s.tools[name]
	return !ok || t.Tool.IsIdempotent()
}

// ExecuteCall runs one call and returns what the model reads, which says in words what went wrong if the call failed: an
// unknown tool, arguments that do not fit, an error, a panic, the end of the time. It returns when the call's time is
// over or ctx ends, even if the tool does not. Where the call needs its caller's credential first, it says what for.
func (s *Set) ExecuteCall(ctx context.Context, call agentsvc.ToolCall, step string) (agentsvc.ToolResult, *CredentialError) {
	text, err := s.runWithTimeout(ctx, call, step)
	if err != nil {
		text = err.Error()
	}
	var credentialErr *CredentialError
	errors.As(err, &credentialErr)
	return agentsvc.ToolResult{Call: call.ID, Name: call.Name, Text: s.trimOutput(text), Failed: err != nil}, credentialErr
}

func (s *Set) runWithTimeout(ctx context.Context, call agentsvc.ToolCall, step string) (string, error) {
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
	if agentsvc.CheckLease(ctx) != nil {
		return "", fmt.Errorf("%s was not run: the call was cancelled", call.Name)
	}
	limit := callTimeout(t.Tool, s.opts.Timeout)
	callCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan callOutcome, 1)
	go func() { done <- s.callWithRecover(callCtx, t, Input{Step: step, Arguments: args}) }()
	var out callOutcome
	select {
	case out = <-done:
	case <-callCtx.Done():
		select {
		case out = <-done:
		default:
			s.opts.Logger.WarnContext(ctx, "tool call goes on after its end", "tool", call.Name, "step", step)
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

// callOutcome is what a call came to.
type callOutcome struct {
	text string
	err  error
}

var errToolPanicked = errors.New("the tool failed inside; the same call will most likely fail again")

// callWithRecover runs a call and turns a panic into an error.
func (s *Set) callWithRecover(ctx context.Context, t Tool, in Input) (out callOutcome) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		// A value that is not the runtime's may hold what no log may: its type says enough beside the stack.
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

// trimOutput makes text fit to be kept and read: UTF-8 without NUL, not longer than MaxOutput but for a note that says so.
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
