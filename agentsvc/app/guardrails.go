package app

import (
	"context"
	"iter"
	"log/slog"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/tool"
)

// guard puts an agent's guardrail around its model and its tools. A nil guard changes nothing.
type guard struct {
	rail   *guardrail.Guardrail
	log    *slog.Logger
	judged func(context.Context, guardrail.Finding)
}

// allGuardrails builds what is configured under guardrails and turned on.
func (b *builder) allGuardrails() {
	b.rails = make(map[string]*guardrail.Guardrail, len(b.cfg.Guardrails))
	for name, c := range b.cfg.Guardrails {
		if !c.Enabled {
			continue
		}
		rail, err := guardrail.New(name, guardrailOptions(c))
		b.wrong("guardrails."+name, err)
		b.rails[name] = rail
	}
}

// guard returns the guard of an agent, nil if it has none or one that is turned off.
func (b *builder) guard(a *config.Agent) *guard {
	rail := b.rails[a.Guardrails]
	if rail == nil {
		return nil
	}
	return &guard{rail, b.log.With("agent", a.Name), b.judged}
}

// report tells the turn, log and meters of findings. None learns anything of the text.
func (g *guard) report(ctx context.Context, found ...guardrail.Finding) {
	for _, f := range found {
		agentsvc.Found(ctx, f.Told())
		if f.Action != guardrail.Allow {
			attrs := []slog.Attr{slog.String("guardrail", f.Guardrail), slog.String("check", f.Check),
				slog.String("action", string(f.Action)), slog.String("severity", f.Severity), slog.Bool("shadow", f.Shadow)}
			if f.Unjudged {
				attrs = append(attrs, slog.Any("error", pattern.ErrTooMuch))
			}
			g.log.LogAttrs(ctx, levels[f.Severity], "a guardrail has struck", attrs...)
		}
		if g.judged != nil {
			g.judged(ctx, f)
		}
	}
}

// levels are how loudly the log tells of a finding, by its severity.
var levels = map[string]slog.Level{"low": slog.LevelInfo, "medium": slog.LevelWarn, "high": slog.LevelError, "critical": slog.LevelError}

// past returns what may be read of a conversation in which everything was asked before. An error says why the context ended.
func (g *guard) past(ctx context.Context, talk []agentsvc.Entry) ([]agentsvc.Entry, error) {
	if g == nil {
		return talk, nil
	}
	return g.rail.Past(ctx, talk)
}

// read returns what may be read of a text that a caller sent before, and whether anything may.
func (g *guard) read(ctx context.Context, text string) (string, bool) {
	if g == nil {
		return text, true
	}
	return g.rail.Read(ctx, text)
}

// background has next look up what goes with what the guard lets in.
func (g *guard) background(next func(context.Context, []agentsvc.Entry) string) func(context.Context, []agentsvc.Entry) string {
	if g == nil {
		return next
	}
	return func(ctx context.Context, talk []agentsvc.Entry) string {
		v, err := g.rail.Input(ctx, talk)
		if err != nil || v.Refusal != "" {
			return "" // nobody will be asked
		}
		return next(ctx, v.Conversation)
	}
}

// model returns m behind the guard.
func (g *guard) model(m llm.Provider) llm.Provider {
	if g == nil {
		return m
	}
	return guardedModel{g, m}
}

// guardedModel is a model that is asked only what its guardrail lets in and that says only what it lets out.
type guardedModel struct {
	*guard
	next llm.Provider
}

// Stream implements [llm.Provider].
func (m guardedModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		v, err := m.rail.Input(ctx, req.Conversation)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		m.report(ctx, v.Findings...)
		if v.Refusal != "" {
			yield(llm.Chunk{Text: v.Refusal, Stop: llm.StopRefusal}, nil)
			return
		}
		req.Conversation = v.Conversation
		out := guardedAnswer{answer: m.rail.Answer(ctx), yield: yield}
		defer func() { m.report(ctx, out.answer.Findings()...) }()
		for c, err := range m.next.Stream(ctx, req) {
			if err != nil {
				if out.answer.Blocked() && ctx.Err() == nil {
					break // what it would have said is not wanted any more
				}
				yield(llm.Chunk{}, err)
				return
			}
			if !out.take(c) {
				return
			}
		}
		out.end()
	}
}

// guardedAnswer is one answer on its way through a guardrail. Tool calls wait for the end of the answer: one that is
// blocked calls nothing. A blocked answer is read on for what it says about usage.
type guardedAnswer struct {
	answer *guardrail.Answer
	yield  func(llm.Chunk, error) bool
	calls  []agentsvc.ToolCall
	stop   llm.Stop
}

// take passes on what may be seen of c. It reports whether anyone still listens.
func (a *guardedAnswer) take(c llm.Chunk) bool {
	if c.Alone && !a.yield(llm.Chunk{Alone: true}, nil) {
		return false
	}
	if c.Text != "" && !a.pass(a.answer.Text(c.Text)) {
		return false
	}
	if c.Artifact != nil && !a.pass(a.answer.Artifact(*c.Artifact)) {
		return false
	}
	if c.ToolCall != nil {
		a.calls = append(a.calls, *c.ToolCall)
	}
	if c.Stop != "" {
		a.stop = c.Stop
	}
	return c.Usage == nil || a.yield(llm.Chunk{Usage: c.Usage}, nil)
}

func (a *guardedAnswer) pass(p guardrail.Passed) bool {
	for i := range p.Artifacts {
		if !a.yield(llm.Chunk{Artifact: &p.Artifacts[i]}, nil) {
			return false
		}
	}
	return p.Text == "" || a.yield(llm.Chunk{Text: p.Text}, nil)
}

func (a *guardedAnswer) end() {
	rest := a.answer.End()
	if err := a.answer.Err(); err != nil {
		a.yield(llm.Chunk{}, err)
		return
	}
	if !a.pass(rest) {
		return
	}
	if a.answer.Blocked() {
		a.yield(llm.Chunk{Stop: llm.StopRefusal}, nil)
		return
	}
	for i := range a.calls {
		if !a.yield(llm.Chunk{ToolCall: &a.calls[i]}, nil) {
			return
		}
	}
	if a.stop != "" {
		a.yield(llm.Chunk{Stop: a.stop}, nil)
	}
}

// tool returns t behind the guard. One that may not be called needs no approval either.
func (g *guard) tool(t tool.Tool) tool.Tool {
	if g == nil {
		return t
	}
	f, strikes := g.rail.Tool(t.Spec().Name)
	switch {
	case !strikes:
		return t
	case f.Blocks():
		return guardedTool{t, g, f}
	}
	return tool.Around(t, func(t tool.Tool) tool.Tool { return guardedTool{t, g, f} })
}

// guardedTool is a tool whose calls a guardrail has something against.
type guardedTool struct {
	tool.Tool
	*guard
	finding guardrail.Finding
}

// Call implements [tool.Tool].
func (t guardedTool) Call(ctx context.Context, in tool.Input) (string, error) {
	t.report(ctx, t.finding)
	if t.finding.Blocks() {
		return "", guardrail.ErrNotAllowed
	}
	return t.Tool.Call(ctx, in)
}

// Idempotent implements [tool.Tool]: a call that is refused may be made again.
func (t guardedTool) Idempotent() bool { return t.finding.Blocks() || t.Tool.Idempotent() }

// source returns src with its tools behind the guard.
func (g *guard) source(src tool.Source) tool.Source {
	if g == nil {
		return src
	}
	return guardedSource{src, g}
}

type guardedSource struct {
	tool.Source
	*guard
}

// Tools implements [tool.Source].
func (s guardedSource) Tools(ctx context.Context) ([]tool.Tool, error) {
	tools, err := s.Source.Tools(ctx)
	guarded := make([]tool.Tool, len(tools))
	for i, t := range tools {
		guarded[i] = s.tool(t)
	}
	return guarded, err
}

// members returns agents that are used like tools, behind the guard.
func (g *guard) members(list []agent.Member) []agent.Member {
	if g == nil {
		return list
	}
	for i, m := range list {
		if f, strikes := g.rail.Tool(m.Name); strikes {
			list[i].Agent = guardedAgent{m.Agent, g, m.Name, f}
		}
	}
	return list
}

// guardedAgent is an agent whose use as a tool a guardrail has something against.
type guardedAgent struct {
	agent.Agent
	*guard
	name    string
	finding guardrail.Finding
}

// Run implements [agent.Agent].
func (a guardedAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		a.report(ctx, a.finding)
		if a.finding.Blocks() {
			yield(agentsvc.Event{}, agentsvc.Invalid("", "%s: %v", a.name, guardrail.ErrNotAllowed))
			return
		}
		a.Agent.Run(ctx, inv)(yield)
	}
}

func guardrailOptions(c *config.Guardrail) guardrail.Options {
	o := guardrail.Options{Shadow: c.Mode == "shadow"}
	if in := c.Input; in != nil {
		o.Input = inputOptions(in)
	}
	if out := c.Output; out != nil {
		o.Output = outputOptions(out)
	}
	if c.Tool != nil && c.Tool.Authorization != nil && c.Tool.Authorization.Enabled {
		a := c.Tool.Authorization
		o.Authorization = &guardrail.Authorization{Rule: rule(a.Action, a.Severity), Allowed: a.AllowedTools, Blocked: a.BlockedTools}
	}
	return o
}

func inputOptions(c *config.InputGuardrail) guardrail.Input {
	o := guardrail.Input{CollectAll: collects(c.ChainMode)}
	if l := c.Length; l != nil && l.Enabled {
		o.Length = &guardrail.Length{Rule: rule(l.Action, l.Severity), Min: l.MinLength, Max: l.MaxLength}
	}
	if i := c.Injection; i != nil && i.Enabled {
		o.Injection = &guardrail.Injection{Rule: rule(i.Action, i.Severity), Patterns: i.Patterns, CaseSensitive: i.CaseSensitive}
	}
	if s := c.Sanitizer; s != nil && s.Enabled {
		o.Sanitizer = &guardrail.Sanitizer{
			TrimWhitespace: s.TrimWhitespace, NormalizeUnicode: s.NormalizeUnicode, StripHTML: s.StripHTML, MaxLength: s.MaxLength,
		}
	}
	return o
}

func outputOptions(c *config.OutputGuardrail) guardrail.Output {
	o := guardrail.Output{CollectAll: collects(c.ChainMode)}
	if p := c.PII; p != nil && p.Enabled {
		o.PII = &guardrail.PII{
			Rule: rule(p.Action, p.Severity), Email: p.DetectEmail, Phone: p.DetectPhone, SSN: p.DetectSSN, CreditCard: p.DetectCreditCard,
			Redaction: guardrail.Redaction(p.RedactMode),
		}
	}
	if k := c.Content; k != nil && k.Enabled {
		o.Content = &guardrail.Content{Rule: rule(k.Action, k.Severity), Keywords: k.BlockedKeywords, Patterns: k.BlockedPatterns}
	}
	return o
}

func collects(chainMode string) bool { return chainMode == "collect_all" }

func rule(action, severity string) guardrail.Rule {
	return guardrail.Rule{Action: guardrail.Action(action), Severity: severity}
}
