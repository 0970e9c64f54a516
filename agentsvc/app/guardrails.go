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

// agentGuardrail puts an agent's guardrail around its model and its tools. A nil guard changes nothing.
type agentGuardrail struct {
	guardrail *guardrail.Guardrail
	log       *slog.Logger
	onFinding func(context.Context, guardrail.Finding)
}

// buildGuardrails builds what is configured under guardrails and turned on.
func (b *builder) buildGuardrails() {
	b.guardrails = make(map[string]*guardrail.Guardrail, len(b.cfg.Guardrails))
	for name, c := range b.cfg.Guardrails {
		if !c.Enabled {
			continue
		}
		built, err := guardrail.New(name, guardrailOptions(c))
		b.addProblem("guardrails."+name, err)
		b.guardrails[name] = built
	}
}

// guardrailFor returns the guard of an agent, nil if it has none or one that is turned off.
func (b *builder) guardrailFor(a *config.Agent) *agentGuardrail {
	built := b.guardrails[a.Guardrails]
	if built == nil {
		return nil
	}
	return &agentGuardrail{built, b.log.With("agent", a.Name), b.onFinding}
}

// reportFindings tells the turn, log and meters of findings. None learns anything of the text.
func (g *agentGuardrail) reportFindings(ctx context.Context, found ...guardrail.Finding) {
	for _, f := range found {
		agentsvc.RecordFinding(ctx, f.ToFinding())
		if f.Action != guardrail.Allow {
			attrs := []slog.Attr{slog.String("guardrail", f.Guardrail), slog.String("check", f.Check),
				slog.String("action", string(f.Action)), slog.String("severity", f.Severity), slog.Bool("shadow", f.Shadow)}
			if f.Unevaluated {
				attrs = append(attrs, slog.Any("error", pattern.ErrTooManySteps))
			}
			g.log.LogAttrs(ctx, severityLevels[f.Severity], "a guardrail has struck", attrs...)
		}
		if g.onFinding != nil {
			g.onFinding(ctx, f)
		}
	}
}

// severityLevels are how loudly the log tells of a finding, by its severity.
var severityLevels = map[string]slog.Level{"low": slog.LevelInfo, "medium": slog.LevelWarn, "high": slog.LevelError, "critical": slog.LevelError}

// filterHistory returns what may be read of a conversation in which everything was asked before. An error says why the context ended.
func (g *agentGuardrail) filterHistory(ctx context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, error) {
	if g == nil {
		return conversation, nil
	}
	return g.guardrail.EvaluateHistory(ctx, conversation)
}

// filterText returns what may be read of a text that a caller sent before, and whether anything may.
func (g *agentGuardrail) filterText(ctx context.Context, text string) (string, bool) {
	if g == nil {
		return text, true
	}
	return g.guardrail.EvaluateText(ctx, text)
}

// guardBackground has next look up what goes with what the guard lets in.
func (g *agentGuardrail) guardBackground(next func(context.Context, []agentsvc.Entry) string) func(context.Context, []agentsvc.Entry) string {
	if g == nil {
		return next
	}
	return func(ctx context.Context, conversation []agentsvc.Entry) string {
		v, err := g.guardrail.EvaluateInput(ctx, conversation)
		if err != nil || v.Refusal != "" {
			return "" // nobody will be asked
		}
		return next(ctx, v.Conversation)
	}
}

// guardModel returns m behind the guard.
func (g *agentGuardrail) guardModel(m llm.Provider) llm.Provider {
	if g == nil {
		return m
	}
	return guardedModel{g, m}
}

// guardedModel is a model that is asked only what its guardrail lets in and that says only what it lets out.
type guardedModel struct {
	*agentGuardrail
	next llm.Provider
}

// Stream implements [llm.Provider].
func (m guardedModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		v, err := m.guardrail.EvaluateInput(ctx, req.Conversation)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		m.reportFindings(ctx, v.Findings...)
		if v.Refusal != "" {
			yield(llm.Chunk{Text: v.Refusal, Stop: llm.StopRefusal}, nil)
			return
		}
		req.Conversation = v.Conversation
		out := guardedAnswer{answer: m.guardrail.NewAnswerCheck(ctx), yield: yield}
		defer func() { m.reportFindings(ctx, out.answer.Findings()...) }()
		for c, err := range m.next.Stream(ctx, req) {
			if err != nil {
				if out.answer.IsBlocked() && ctx.Err() == nil {
					break // what it would have said is not wanted any more
				}
				yield(llm.Chunk{}, err)
				return
			}
			if !out.handleChunk(c) {
				return
			}
		}
		out.endAnswer()
	}
}

// guardedAnswer is one answer on its way through a guardrail. Tool calls wait for the end of the answer: one that is
// blocked calls nothing. A blocked answer is read on for what it says about usage.
type guardedAnswer struct {
	answer *guardrail.AnswerCheck
	yield  func(llm.Chunk, error) bool
	calls  []agentsvc.ToolCall
	stop   llm.StopReason
}

// handleChunk passes on what may be seen of c. It reports whether anyone still listens.
func (a *guardedAnswer) handleChunk(c llm.Chunk) bool {
	if c.Standalone && !a.yield(llm.Chunk{Standalone: true}, nil) {
		return false
	}
	if c.Text != "" && !a.yieldPassed(a.answer.CheckText(c.Text)) {
		return false
	}
	if c.Artifact != nil && !a.yieldPassed(a.answer.CheckArtifact(*c.Artifact)) {
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

func (a *guardedAnswer) yieldPassed(p guardrail.AllowedOutput) bool {
	for i := range p.Artifacts {
		if !a.yield(llm.Chunk{Artifact: &p.Artifacts[i]}, nil) {
			return false
		}
	}
	return p.Text == "" || a.yield(llm.Chunk{Text: p.Text}, nil)
}

func (a *guardedAnswer) endAnswer() {
	remaining := a.answer.EndAnswer()
	if err := a.answer.Err(); err != nil {
		a.yield(llm.Chunk{}, err)
		return
	}
	if !a.yieldPassed(remaining) {
		return
	}
	if a.answer.IsBlocked() {
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

// guardTool returns t behind the guard. One that may not be called needs no approval either.
func (g *agentGuardrail) guardTool(t tool.Tool) tool.Tool {
	if g == nil {
		return t
	}
	f, matches := g.guardrail.EvaluateTool(t.Spec().Name)
	switch {
	case !matches:
		return t
	case f.Blocks():
		return guardedTool{t, g, f}
	}
	return tool.Decorate(t, func(t tool.Tool) tool.Tool { return guardedTool{t, g, f} })
}

// guardedTool is a tool whose calls a guardrail has something against.
type guardedTool struct {
	tool.Tool
	*agentGuardrail
	finding guardrail.Finding
}

// Call implements [tool.Tool].
func (t guardedTool) Call(ctx context.Context, in tool.Input) (string, error) {
	t.reportFindings(ctx, t.finding)
	if t.finding.Blocks() {
		return "", guardrail.ErrNotAllowed
	}
	return t.Tool.Call(ctx, in)
}

// IsIdempotent implements [tool.Tool]: a call that is refused may be made again.
func (t guardedTool) IsIdempotent() bool { return t.finding.Blocks() || t.Tool.IsIdempotent() }

// guardSource returns src with its tools behind the guard.
func (g *agentGuardrail) guardSource(src tool.Source) tool.Source {
	if g == nil {
		return src
	}
	return guardedSource{src, g}
}

type guardedSource struct {
	tool.Source
	*agentGuardrail
}

// ListTools implements [tool.Source].
func (s guardedSource) ListTools(ctx context.Context) ([]tool.Tool, error) {
	tools, err := s.Source.ListTools(ctx)
	guarded := make([]tool.Tool, len(tools))
	for i, t := range tools {
		guarded[i] = s.guardTool(t)
	}
	return guarded, err
}

// guardMembers returns agents that are used like tools, behind the guard.
func (g *agentGuardrail) guardMembers(list []agent.Member) []agent.Member {
	if g == nil {
		return list
	}
	for i, m := range list {
		if f, matches := g.guardrail.EvaluateTool(m.Name); matches {
			list[i].Agent = guardedAgentTool{m.Agent, g, m.Name, f}
		}
	}
	return list
}

// guardedAgentTool is an agent whose use as a tool a guardrail has something against.
type guardedAgentTool struct {
	agent.Agent
	*agentGuardrail
	name    string
	finding guardrail.Finding
}

// Run implements [agent.Agent].
func (a guardedAgentTool) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		a.reportFindings(ctx, a.finding)
		if a.finding.Blocks() {
			yield(agentsvc.Event{}, agentsvc.NewInvalidError("", "%s: %v", a.name, guardrail.ErrNotAllowed))
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
		o.Authorization = &guardrail.Authorization{Rule: guardrailRule(a.Action, a.Severity), Allowed: a.AllowedTools, Blocked: a.BlockedTools}
	}
	return o
}

func inputOptions(c *config.InputGuardrail) guardrail.Input {
	o := guardrail.Input{CollectAll: collectsAll(c.ChainMode)}
	if l := c.Length; l != nil && l.Enabled {
		o.Length = &guardrail.Length{Rule: guardrailRule(l.Action, l.Severity), Min: l.MinLength, Max: l.MaxLength}
	}
	if i := c.Injection; i != nil && i.Enabled {
		o.Injection = &guardrail.Injection{Rule: guardrailRule(i.Action, i.Severity), Patterns: i.Patterns, CaseSensitive: i.CaseSensitive}
	}
	if s := c.Sanitizer; s != nil && s.Enabled {
		o.Sanitizer = &guardrail.Sanitizer{
			TrimWhitespace: s.TrimWhitespace, NormalizeUnicode: s.NormalizeUnicode, StripHTML: s.StripHTML, MaxLength: s.MaxLength,
		}
	}
	return o
}

func outputOptions(c *config.OutputGuardrail) guardrail.Output {
	o := guardrail.Output{CollectAll: collectsAll(c.ChainMode)}
	if p := c.PII; p != nil && p.Enabled {
		o.PII = &guardrail.PII{
			Rule: guardrailRule(p.Action, p.Severity), Email: p.DetectEmail, Phone: p.DetectPhone, SSN: p.DetectSSN, CreditCard: p.DetectCreditCard,
			Redaction: guardrail.Redaction(p.RedactMode),
		}
	}
	if k := c.Content; k != nil && k.Enabled {
		o.Content = &guardrail.Content{Rule: guardrailRule(k.Action, k.Severity), Keywords: k.BlockedKeywords, Patterns: k.BlockedPatterns}
	}
	return o
}

func collectsAll(chainMode string) bool { return chainMode == "collect_all" }

func guardrailRule(action, severity string) guardrail.Rule {
	return guardrail.Rule{Action: guardrail.Action(action), Severity: severity}
}
