package app

import (
	"context"
	"iter"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/guardrail"
)

// guardAgent returns a behind the guard, whatever it is made of: what it is asked is judged before it begins, what it answers
// before anyone sees it.
func (g *agentGuardrail) guardAgent(a agent.Agent) agent.Agent {
	if g == nil {
		return a
	}
	return boundaryGuardedAgent{a, g}
}

// boundaryGuardedAgent is an agent whose work a guardrail judges as a whole. What those below it say to each other is not its
// answer.
type boundaryGuardedAgent struct {
	agent.Agent
	*agentGuardrail
}

// Run implements [agent.Agent].
func (a boundaryGuardedAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		v, err := a.guardrail.EvaluateInput(ctx, inv.Conversation)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
		if !hasStarted(inv) {
			a.reportFindings(ctx, v.Findings...)
		}
		w := guardedTurn{agentGuardrail: a.agentGuardrail, ctx: ctx, yield: yield, task: inv.Task, artifactAnswer: a.guardrail.NewAnswerCheck(ctx), frames: map[string]string{}}
		if v.Refusal != "" {
			w.rejectTurn(agentsvc.Message{}, v.Refusal)
			return
		}
		inv.Conversation = v.Conversation
		for ev, err := range a.Agent.Run(ctx, inv) {
			if !w.handleEvent(ev, err) {
				return
			}
		}
	}
}

// hasStarted reports whether an earlier attempt has got as far as the agents below.
func hasStarted(inv agent.Invocation) bool {
	for frame := range inv.Frames {
		if inv.Frame == "" || strings.HasPrefix(frame, inv.Frame+"/") {
			return true
		}
	}
	return false
}

// guardedTurn is one turn of a guarded agent.
type guardedTurn struct {
	*agentGuardrail
	ctx              context.Context
	yield            func(agentsvc.Event, error) bool
	task             agentsvc.TaskID
	reported         []guardrail.Finding    // reported
	artifactAnswer   *guardrail.AnswerCheck // of the artifacts
	pendingArtifacts []agentsvc.ArtifactUpdate
	frames           map[string]string // where artifacts come from
	filteredMessage
	blocked bool
	reason  string // in words, where artifacts are to blame
}

// filteredMessage is the message that is shown while it is written. What is let through of it has an id of its own: the message
// itself may go on record below, as it is.
type filteredMessage struct {
	sourceID agentsvc.MessageID
	shownID  agentsvc.MessageID
	answer   *guardrail.AnswerCheck
	raw      strings.Builder
	shown    strings.Builder // what was let through
	ended    bool
}

// handleEvent handles one event. It reports whether the work goes on. After a block the agent may finish what it is saying, so
// that what that cost is known, and does nothing more.
func (w *guardedTurn) handleEvent(ev agentsvc.Event, err error) bool {
	switch {
	case err != nil && w.blocked && w.ctx.Err() == nil:
		return w.rejectTurn(agentsvc.Message{}, "")
	case err != nil:
		w.reportAnswers(w.artifactAnswer, w.answer)
		w.yield(ev, err)
		return false
	case ev.Usage != nil:
		return w.yield(ev, nil)
	case ev.Status != nil && ev.Status.Message != nil:
		return w.endTurn(ev)
	case ev.Chunk != nil:
		return w.showChunk(*ev.Chunk)
	case ev.Artifact != nil:
		return w.showArtifact(ev)
	case ev.Message != nil && ev.Message.ID == w.sourceID && !w.finishMessage(): // before the tools run that it calls
		return false
	case w.blocked:
		return w.rejectTurn(agentsvc.Message{}, "")
	}
	return w.yield(ev, nil)
}

// showChunk shows what may be seen of a piece of a message.
func (w *guardedTurn) showChunk(c agentsvc.Chunk) bool {
	if w.blocked || w.guardrail.BuffersAnswer() {
		return true
	}
	if c.Message != w.sourceID {
		if !w.finishMessage() {
			return false
		}
		w.reportAnswers(w.answer)
		w.filteredMessage = filteredMessage{sourceID: c.Message, shownID: agentsvc.MessageID(agentsvc.NewID()), answer: w.guardrail.NewAnswerCheck(w.ctx)}
	}
	if w.blocked || c.Offset != w.raw.Len() {
		return true
	}
	w.raw.WriteString(c.Text)
	return w.showText(w.answer.CheckText(c.Text).Text)
}

// finishMessage shows the rest of the message that is being written.
func (w *guardedTurn) finishMessage() bool {
	if w.answer == nil || w.ended || w.blocked {
		return true
	}
	w.ended = true
	return w.showText(w.answer.EndAnswer().Text)
}

func (w *guardedTurn) showText(text string) bool {
	w.blocked = w.blocked || w.answer.IsBlocked()
	if text == "" {
		return true
	}
	c := agentsvc.Chunk{Message: w.shownID, Offset: w.shown.Len(), Text: text}
	w.shown.WriteString(text)
	return w.yield(agentsvc.Event{Chunk: &c}, nil)
}

// showArtifact shows what may be seen of an artifact.
func (w *guardedTurn) showArtifact(ev agentsvc.Event) bool {
	if w.blocked {
		return true
	}
	w.frames[ev.Artifact.Artifact.ID] = ev.Frame
	if w.guardrail.BuffersAnswer() {
		w.pendingArtifacts = append(w.pendingArtifacts, *ev.Artifact)
		return true
	}
	return w.yieldArtifacts(w.artifactAnswer, w.artifactAnswer.CheckArtifact(*ev.Artifact))
}

// yieldArtifacts passes on what passed of artifacts.
func (w *guardedTurn) yieldArtifacts(by *guardrail.AnswerCheck, p guardrail.AllowedOutput) bool {
	if by.IsBlocked() && !w.blocked {
		w.blocked, w.reason = true, p.Text
	}
	for i, up := range p.Artifacts {
		if !w.yield(agentsvc.Event{Frame: w.frames[up.Artifact.ID], Artifact: &p.Artifacts[i]}, nil) {
			return false
		}
	}
	return true
}

// endTurn ends the turn with what may be seen of its answer.
func (w *guardedTurn) endTurn(ev agentsvc.Event) bool {
	msg := *ev.Status.Message
	if !w.blocked && !w.yieldArtifacts(w.artifactAnswer, w.artifactAnswer.EndAnswer()) {
		return false
	}
	if w.blocked {
		return w.rejectTurn(msg, "")
	}
	if w.answer == nil || msg.ID != w.sourceID || !strings.HasPrefix(msg.Text(), w.raw.String()) || w.ended && len(msg.Text()) > w.raw.Len() {
		w.reportAnswers(w.answer)
		w.filteredMessage = filteredMessage{answer: w.guardrail.NewAnswerCheck(w.ctx)}
	}
	for _, up := range w.pendingArtifacts {
		w.answer.CheckArtifact(up)
	}
	parts, ok := w.visibleParts(msg)
	if !ok {
		return false
	}
	w.reportAnswers(w.artifactAnswer, w.answer)
	if w.answer.IsBlocked() {
		return w.rejectTurn(msg, "")
	}
	if w.shownID != "" {
		msg.ID = w.shownID
	}
	msg.Parts = parts
	ev.Status = &agentsvc.Status{State: ev.Status.State, Message: &msg}
	w.yield(ev, nil)
	return false
}

// visibleParts returns what may be seen of the parts of the last message: its text, then the rest.
func (w *guardedTurn) visibleParts(msg agentsvc.Message) (parts []agentsvc.Part, ok bool) {
	const remaining = "\x00the parts of a message"
	up := agentsvc.ArtifactUpdate{Last: true, Artifact: agentsvc.Artifact{ID: remaining}}
	for _, p := range msg.Parts {
		if p.File != nil || p.Data != nil {
			up.Artifact.Parts = append(up.Artifact.Parts, p)
		}
	}
	passed := []guardrail.AllowedOutput{w.answer.CheckText(msg.Text()[w.raw.Len():])}
	if len(up.Artifact.Parts) > 0 {
		passed = append(passed, w.answer.CheckArtifact(up))
	}
	if !w.ended {
		passed = append(passed, w.answer.EndAnswer())
	}
	for _, p := range passed {
		w.shown.WriteString(p.Text)
		for i, a := range p.Artifacts {
			if a.Artifact.ID == remaining {
				parts = append(parts, a.Artifact.Parts...)
			} else if !w.yield(agentsvc.Event{Frame: w.frames[a.Artifact.ID], Artifact: &p.Artifacts[i]}, nil) {
				return nil, false
			}
		}
	}
	text := w.shown.String()
	if text == msg.Text() && len(up.Artifact.Parts) == 0 {
		return msg.Parts, true
	}
	if text != "" || len(parts) == 0 {
		parts = append([]agentsvc.Part{agentsvc.TextPart(text)}, parts...)
	}
	return parts, true
}

// rejectTurn ends the turn: with why, or with what was shown, which ends with words that say so. The message keeps what is
// not for the caller.
func (w *guardedTurn) rejectTurn(msg agentsvc.Message, reason string) bool {
	w.reportAnswers(w.artifactAnswer, w.answer)
	if err := w.ctx.Err(); err != nil {
		w.yield(agentsvc.Event{}, err)
		return false
	}
	if reason == "" {
		reason = w.shown.String()
	}
	if w.reason != "" {
		if reason != "" {
			reason += "\n\n"
		}
		reason += w.reason
	}
	id := w.shownID
	if id == "" {
		id = agentsvc.MessageID(agentsvc.NewID())
	}
	refusal := agentsvc.Message{
		ID: id, Task: w.task, Role: agentsvc.RoleAgent, Metadata: msg.Metadata, Parts: []agentsvc.Part{agentsvc.TextPart(reason)},
	}
	w.yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Rejected, Message: &refusal}}, nil)
	return false
}

// reportAnswers reports what answers were found to hold, each kind once.
func (w *guardedTurn) reportAnswers(answers ...*guardrail.AnswerCheck) {
	for _, a := range answers {
		if a == nil {
			continue
		}
		for _, f := range a.Findings() {
			if !slices.Contains(w.reported, f) {
				w.reported = append(w.reported, f)
				w.reportFindings(w.ctx, f)
			}
		}
	}
}
