package runtime

import (
	"context"
	"iter"
	"log/slog"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/tool"
)

// agentGuardrail applies an agent's guardrail to its model, its tools and the agents it uses as tools. A nil
// agentGuardrail changes nothing: every method returns its argument.
type agentGuardrail struct {
	guardrail *guardrail.Guardrail
	log       *slog.Logger
	// onFinding may be nil.
	onFinding func(context.Context, guardrail.Finding)
}

// guardrailSet is the enabled guardrails of a configuration, from which agents get theirs.
type guardrailSet struct {
	// byName has no entry for a disabled guardrail.
	byName map[string]*guardrail.Guardrail
	log    *slog.Logger
	// onFinding may be nil.
	onFinding func(context.Context, guardrail.Finding)
}

// newGuardrailSet builds the enabled guardrails of the configuration. onFinding is called for each finding, with the
// name of the app; it may be nil.
func newGuardrailSet(b *build, onFinding func(ctx context.Context, app string, f guardrail.Finding)) *guardrailSet {
	set := &guardrailSet{byName: make(map[string]*guardrail.Guardrail, len(b.cfg.Guardrails)), log: b.log}
	if onFinding != nil {
		set.onFinding = func(ctx context.Context, f guardrail.Finding) { onFinding(ctx, b.tenant.Name, f) }
	}
	for name, c := range b.cfg.Guardrails {
		if !c.Enabled {
			continue
		}
		built, err := guardrail.New(name, guardrailOptions(b.appID(), c))
		b.addProblem("guardrails."+name, err)
		set.byName[name] = built
	}
	return set
}

// guardrailFor returns the guardrail of an agent, nil if it has none or a disabled one.
func (s *guardrailSet) guardrailFor(a *config.Agent) *agentGuardrail {
	built := s.byName[a.Guardrails]
	if built == nil {
		return nil
	}
	return &agentGuardrail{built, s.log.With("agent", a.Name), s.onFinding}
}

// reportFindings reports findings to record, the turn's recorder, whose last message lists them, to the log and to the
// metrics. None of them gets any text of the conversation.
func (g *agentGuardrail) reportFindings(ctx context.Context, record agentsvc.FindingRecorder, found ...guardrail.Finding) {
	for _, f := range found {
		// The finding becomes part of the turn's record.
		record.Record(f.ToFinding())
		if f.Action != guardrail.Allow {
			attrs := []slog.Attr{slog.String("guardrail", f.Guardrail), slog.String("check", f.Check),
				slog.String("action", string(f.Action)), slog.String("severity", f.Severity), slog.Bool("shadow", f.Shadow)}
			// The check was given up after its bound of steps, and its finding counts as a match.
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

// severityLevels are the log levels by a finding's severity.
var severityLevels = map[string]slog.Level{"low": slog.LevelInfo, "medium": slog.LevelWarn, "high": slog.LevelError, "critical": slog.LevelError}

// filterHistory returns a conversation with the messages of callers as the guardrail modifies or hides them, for a
// reader other than the agent's model. The error is that of the context.
func (g *agentGuardrail) filterHistory(ctx context.Context, conversation []agentsvc.Entry) ([]agentsvc.Entry, error) {
	if g == nil {
		return conversation, nil
	}
	return g.guardrail.EvaluateHistory(ctx, conversation)
}

// filterText returns an earlier text of a caller as the guardrail modifies it, and false if it must not be read.
func (g *agentGuardrail) filterText(ctx context.Context, text string) (string, bool) {
	if g == nil {
		return text, true
	}
	return g.guardrail.EvaluateText(ctx, text)
}

// passageFilter returns the filter of passages of documents, nil if there is none. It reports what it finds to the run.
func (g *agentGuardrail) passageFilter() retrieval.TextFilter {
	if g == nil {
		return nil
	}
	return func(ctx context.Context, scope agentsvc.RunScope, text string) (string, bool) {
		text, ok, found := g.guardrail.EvaluatePassage(ctx, text)
		g.reportFindings(ctx, scope.Findings, found...)
		return text, ok
	}
}

// backgroundFunc is the type of [agent.Options].Background.
type backgroundFunc = func(context.Context, agentsvc.RunScope, []agentsvc.Entry) string

// guardBackground returns next behind the guardrail: background is looked up only for a conversation that the guardrail
// lets pass, in the modified form.
func (g *agentGuardrail) guardBackground(next backgroundFunc) backgroundFunc {
	if g == nil {
		return next
	}
	return func(ctx context.Context, scope agentsvc.RunScope, conversation []agentsvc.Entry) string {
		v, err := g.guardrail.EvaluateInput(ctx, conversation)
		if err != nil || v.Refusal != "" {
			// The model will not be called.
			return ""
		}
		return next(ctx, scope, v.Conversation)
	}
}

// guardModel returns m behind the guardrail.
func (g *agentGuardrail) guardModel(m llm.Provider) llm.Provider {
	if g == nil {
		return m
	}
	return guardedModel{g, m}
}

// guardedModel is a model that receives only input and returns only output that its guardrail allows.
type guardedModel struct {
	*agentGuardrail
	next llm.Provider
}

// Stream implements [llm.Provider]. A refused request does not reach the model; the refusal is the response.
func (m guardedModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		v, err := m.guardrail.EvaluateInput(ctx, req.Conversation)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		// Findings are those of the last message only; earlier ones were reported in their turns.
		m.reportFindings(ctx, req.Findings, v.Findings...)
		if v.Refusal != "" {
			yield(llm.Chunk{Text: v.Refusal, Stop: llm.StopRefusal}, nil)
			return
		}
		req.Conversation = v.Conversation
		out := guardedAnswer{answer: m.guardrail.NewAnswerCheck(ctx), yield: yield}
		defer func() { m.reportFindings(ctx, req.Findings, out.answer.Findings()...) }()
		for c, err := range m.next.Stream(ctx, req) {
			if err != nil {
				if out.answer.IsBlocked() && ctx.Err() == nil {
					// The response is blocked already: an error after that changes nothing for the caller.
					break
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

// guardedAnswer is one response on its way through a guardrail. Tool calls are held back until the end of the response:
// a blocked response calls no tool. After a block the stream is still read, for the usage at its end.
type guardedAnswer struct {
	// answer is the check of this response, yield the consumer's function.
	answer *guardrail.AnswerCheck
	yield  func(llm.Chunk, error) bool
	// calls are the tool calls that are held back, stop is the reason that follows them.
	calls []agentsvc.ToolCall
	stop  llm.StopReason
}

// handleChunk passes on what is allowed of c. It returns false if the consumer has stopped.
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

// yieldPassed passes on the output that the guardrail has released. It returns false if the consumer has stopped.
func (a *guardedAnswer) yieldPassed(p guardrail.AllowedOutput) bool {
	for i := range p.Artifacts {
		if !a.yield(llm.Chunk{Artifact: &p.Artifacts[i]}, nil) {
			return false
		}
	}
	return p.Text == "" || a.yield(llm.Chunk{Text: p.Text}, nil)
}

// endAnswer releases what the guardrail has held back until the end, then the tool calls and the stop reason.
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

// guardTool returns t behind the guardrail. A tool that may not be called at all also loses its approval: no human is
// asked for a call that fails in any case.
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

// guardedTool is a tool for which the guardrail has a finding.
type guardedTool struct {
	tool.Tool
	*agentGuardrail
	finding guardrail.Finding
}

// Call implements [tool.Tool]. A blocked call returns [guardrail.ErrNotAllowed].
func (t guardedTool) Call(ctx context.Context, in tool.Call) (string, error) {
	t.reportFindings(ctx, in.Findings, t.finding)
	if t.finding.Blocks() {
		return "", guardrail.ErrNotAllowed
	}
	return t.Tool.Call(ctx, in)
}

// IsIdempotent implements [tool.Tool]: a call that is always refused may be repeated after a crash.
func (t guardedTool) IsIdempotent() bool { return t.finding.Blocks() || t.Tool.IsIdempotent() }

// guardSource returns src with each of its tools behind the guardrail. The tools are known only when they are listed.
func (g *agentGuardrail) guardSource(src tool.Source) tool.Source {
	if g == nil {
		return src
	}
	return guardedSource{src, g}
}

// guardedSource is a source whose tools are behind a guardrail.
type guardedSource struct {
	tool.Source
	*agentGuardrail
}

// ListTools implements [tool.Source].
func (s guardedSource) ListTools(ctx context.Context, session agentsvc.SessionKey) ([]tool.Tool, error) {
	tools, err := s.Source.ListTools(ctx, session)
	guarded := make([]tool.Tool, len(tools))
	for i, t := range tools {
		guarded[i] = s.guardTool(t)
	}
	return guarded, err
}

// guardMembers returns the agents that are used as tools behind the guardrail's tool rules. It changes list.
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

// guardedAgentTool is an agent, used as a tool, for which the guardrail has a finding.
type guardedAgentTool struct {
	agent.Agent
	*agentGuardrail
	name    string
	finding guardrail.Finding
}

// Run implements [agent.Agent]. A blocked agent does not run; its caller gets an error with [agentsvc.CodeInvalid].
func (a guardedAgentTool) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		a.reportFindings(ctx, inv.Findings, a.finding)
		if a.finding.Blocks() {
			yield(agentsvc.Event{}, agentsvc.NewInvalidError("", "%s: %v", a.name, guardrail.ErrNotAllowed))
			return
		}
		a.Agent.Run(ctx, inv)(yield)
	}
}

// guardrailOptions converts a configuration. Checks that are not enabled are nil.
func guardrailOptions(app string, c *config.Guardrail) guardrail.Options {
	o := guardrail.Options{App: app, Shadow: c.Mode == "shadow"}
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

// collectsAll reports whether all checks of a chain run, rather than up to the first that blocks.
func collectsAll(chainMode string) bool { return chainMode == "collect_all" }

func guardrailRule(action, severity string) guardrail.Rule {
	return guardrail.Rule{Action: guardrail.Action(action), Severity: severity}
}
