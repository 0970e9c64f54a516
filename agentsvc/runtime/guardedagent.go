package runtime

import (
	"context"
	"iter"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/guardrail"
)

// guardAgent returns a behind the guardrail as a whole, for agents without a model of their own: the input is judged
// before a begins, the output before a caller sees it.
func (g *agentGuardrail) guardAgent(a agent.Agent) agent.Agent {
	if g == nil {
		return a
	}
	return boundaryGuardedAgent{a, g}
}

// boundaryGuardedAgent is an agent whose turn a guardrail judges as a whole. Messages between its members are not its
// output.
type boundaryGuardedAgent struct {
	agent.Agent
	*agentGuardrail
}

// Run implements [agent.Agent]. A refused input ends the turn as rejected, without running the agent.
// ctx and yield are those of Run: a guardedTurn lives only as long as the call.
func (a boundaryGuardedAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		v, err := a.guardrail.EvaluateInput(ctx, inv.Conversation)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
		// A retry of a run judges the same input again; its findings were reported by the first attempt.
		if !hasStarted(inv) {
			a.reportFindings(ctx, inv.Findings, v.Findings...)
		}
		w := guardedTurn{agentGuardrail: a.agentGuardrail, ctx: ctx, yield: yield, task: inv.Task, record: inv.Findings, artifactAnswer: a.guardrail.NewAnswerCheck(ctx), frames: map[string]string{}}
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

// hasStarted reports whether an earlier attempt has journaled a step of an agent below this one.
func hasStarted(inv agent.Invocation) bool {
	for frame := range inv.Frames {
		if inv.Frame == "" || strings.HasPrefix(frame, inv.Frame+"/") {
			return true
		}
	}
	return false
}

// guardedTurn is one turn of a guarded agent. It is used by one goroutine.
type guardedTurn struct {
	*agentGuardrail
	ctx   context.Context
	yield func(agentsvc.Event, error) bool
	task  agentsvc.TaskID
	// record is where the turn's findings go.
	record agentsvc.FindingRecorder
	// reported are the findings that were reported, so that each is reported once.
	reported []guardrail.Finding
	// artifactAnswer checks the artifacts of the turn.
	artifactAnswer *guardrail.AnswerCheck
	// pendingArtifacts are held back until the end if the guardrail buffers the answer.
	pendingArtifacts []agentsvc.ArtifactUpdate
	// frames has the frame of each artifact by its id: the released event must carry it.
	frames map[string]string
	filteredMessage
	// blocked is set once the guardrail has blocked output. After that the turn only ends.
	blocked bool
	// reason is the guardrail's text if artifacts caused the block.
	reason string
}

// filteredMessage is the message that is streamed at present. What is released of it has an id of its own: the
// unfiltered message may be on the log of an agent below, under its own id.
type filteredMessage struct {
	// sourceID is the id of the message that the agent writes, shownID of the one that the caller sees.
	sourceID agentsvc.MessageID
	shownID  agentsvc.MessageID
	answer   *guardrail.AnswerCheck
	// raw is the text so far as the agent wrote it.
	raw strings.Builder
	// shown is the text that was released.
	shown strings.Builder
	// ended is set when the check of this message is complete.
	ended bool
}

// handleEvent handles an event of the agent. It returns false if the turn has ended. After a block the agent may finish
// its current response, so that its usage is recorded, and does nothing more.
func (t *guardedTurn) handleEvent(ev agentsvc.Event, err error) bool {
	switch {
	case err != nil && t.blocked && t.ctx.Err() == nil:
		return t.rejectTurn(agentsvc.Message{}, "")
	case err != nil:
		t.reportAnswers(t.artifactAnswer, t.answer)
		t.yield(ev, err)
		return false
	// Usage passes in any case, also after a block: it has been spent.
	case ev.Usage != nil:
		return t.yield(ev, nil)
	// The status with a message ends the turn.
	case ev.Status != nil && ev.Status.Message != nil:
		return t.endTurn(ev)
	case ev.Chunk != nil:
		return t.showChunk(*ev.Chunk)
	case ev.Artifact != nil:
		return t.showArtifact(ev)
	// A complete message: release the rest of its text before the tools run that it calls.
	case ev.Message != nil && ev.Message.ID == t.sourceID && !t.finishMessage():
		return false
	case t.blocked:
		return t.rejectTurn(agentsvc.Message{}, "")
	}
	return t.yield(ev, nil)
}

// showChunk releases what the guardrail allows of a chunk.
// If the answer is buffered, endTurn checks it as a whole.
func (t *guardedTurn) showChunk(c agentsvc.Chunk) bool {
	if t.blocked || t.guardrail.BuffersAnswer() {
		return true
	}
	// The agent has begun another message: end the check of the one before.
	if c.Message != t.sourceID {
		if !t.finishMessage() {
			return false
		}
		t.reportAnswers(t.answer)
		t.filteredMessage = filteredMessage{sourceID: c.Message, shownID: agentsvc.MessageID(agentsvc.NewID()), answer: t.guardrail.NewAnswerCheck(t.ctx)}
	}
	// A chunk whose offset does not follow repeats text of an earlier attempt.
	if t.blocked || c.Offset != t.raw.Len() {
		return true
	}
	t.raw.WriteString(c.Text)
	return t.showText(t.answer.CheckText(c.Text).Text)
}

// finishMessage releases the rest of the message that is streamed at present.
func (t *guardedTurn) finishMessage() bool {
	if t.answer == nil || t.ended || t.blocked {
		return true
	}
	t.ended = true
	return t.showText(t.answer.EndAnswer().Text)
}

// showText releases a text as a chunk of the shown message.
func (t *guardedTurn) showText(text string) bool {
	t.blocked = t.blocked || t.answer.IsBlocked()
	if text == "" {
		return true
	}
	c := agentsvc.Chunk{Message: t.shownID, Offset: t.shown.Len(), Text: text}
	t.shown.WriteString(text)
	return t.yield(agentsvc.Event{Chunk: &c}, nil)
}

// showArtifact releases what the guardrail allows of an artifact.
func (t *guardedTurn) showArtifact(ev agentsvc.Event) bool {
	if t.blocked {
		return true
	}
	t.frames[ev.Artifact.Artifact.ID] = ev.Frame
	if t.guardrail.BuffersAnswer() {
		t.pendingArtifacts = append(t.pendingArtifacts, *ev.Artifact)
		return true
	}
	return t.yieldArtifacts(t.artifactAnswer, t.artifactAnswer.CheckArtifact(*ev.Artifact))
}

// yieldArtifacts releases artifacts that passed the check by. If the check has blocked, its text becomes the reason.
func (t *guardedTurn) yieldArtifacts(by *guardrail.AnswerCheck, p guardrail.AllowedOutput) bool {
	if by.IsBlocked() && !t.blocked {
		t.blocked, t.reason = true, p.Text
	}
	for i, up := range p.Artifacts {
		if !t.yield(agentsvc.Event{Frame: t.frames[up.Artifact.ID], Artifact: &p.Artifacts[i]}, nil) {
			return false
		}
	}
	return true
}

// endTurn ends the turn with the final message as the guardrail allows it.
func (t *guardedTurn) endTurn(ev agentsvc.Event) bool {
	msg := *ev.Status.Message
	if !t.blocked && !t.yieldArtifacts(t.artifactAnswer, t.artifactAnswer.EndAnswer()) {
		return false
	}
	if t.blocked {
		return t.rejectTurn(msg, "")
	}
	// The final message is not a continuation of what was streamed: check it from its beginning.
	if t.answer == nil || msg.ID != t.sourceID || !strings.HasPrefix(msg.Text(), t.raw.String()) || t.ended && len(msg.Text()) > t.raw.Len() {
		t.reportAnswers(t.answer)
		t.filteredMessage = filteredMessage{answer: t.guardrail.NewAnswerCheck(t.ctx)}
	}
	for _, up := range t.pendingArtifacts {
		t.answer.CheckArtifact(up)
	}
	parts, ok := t.visibleParts(msg)
	if !ok {
		return false
	}
	t.reportAnswers(t.artifactAnswer, t.answer)
	if t.answer.IsBlocked() {
		return t.rejectTurn(msg, "")
	}
	if t.shownID != "" {
		msg.ID = t.shownID
	}
	msg.Parts = parts
	ev.Status = &agentsvc.Status{State: ev.Status.State, Message: &msg}
	t.yield(ev, nil)
	return false
}

// visibleParts returns the allowed parts of the final message: its text, then files and data. ok is false if the
// consumer has stopped. Files and data are checked as an artifact with a reserved id; the NUL in it keeps it apart from
// every other id.
func (t *guardedTurn) visibleParts(msg agentsvc.Message) (parts []agentsvc.Part, ok bool) {
	const remaining = "\x00the parts of a message"
	up := agentsvc.ArtifactUpdate{Last: true, Artifact: agentsvc.Artifact{ID: remaining}}
	for _, p := range msg.Parts {
		if p.File != nil || p.Data != nil {
			up.Artifact.Parts = append(up.Artifact.Parts, p)
		}
	}
	passed := []guardrail.AllowedOutput{t.answer.CheckText(msg.Text()[t.raw.Len():])}
	if len(up.Artifact.Parts) > 0 {
		passed = append(passed, t.answer.CheckArtifact(up))
	}
	if !t.ended {
		passed = append(passed, t.answer.EndAnswer())
	}
	for _, p := range passed {
		t.shown.WriteString(p.Text)
		for i, a := range p.Artifacts {
			if a.Artifact.ID == remaining {
				parts = append(parts, a.Artifact.Parts...)
			} else if !t.yield(agentsvc.Event{Frame: t.frames[a.Artifact.ID], Artifact: &p.Artifacts[i]}, nil) {
				return nil, false
			}
		}
	}
	text := t.shown.String()
	if text == msg.Text() && len(up.Artifact.Parts) == 0 {
		return msg.Parts, true
	}
	if text != "" || len(parts) == 0 {
		parts = append([]agentsvc.Part{agentsvc.TextPart(text)}, parts...)
	}
	return parts, true
}

// rejectTurn ends the turn as rejected. Its message is reason, or else what was shown, which then ends with the
// guardrail's refusal. Metadata of msg is kept: it is not shown to the caller.
func (t *guardedTurn) rejectTurn(msg agentsvc.Message, reason string) bool {
	t.reportAnswers(t.artifactAnswer, t.answer)
	if err := t.ctx.Err(); err != nil {
		t.yield(agentsvc.Event{}, err)
		return false
	}
	if reason == "" {
		reason = t.shown.String()
	}
	if t.reason != "" {
		if reason != "" {
			reason += "\n\n"
		}
		reason += t.reason
	}
	id := t.shownID
	if id == "" {
		id = agentsvc.MessageID(agentsvc.NewID())
	}
	refusal := agentsvc.Message{
		ID: id, Task: t.task, Role: agentsvc.RoleAgent, Metadata: msg.Metadata, Parts: []agentsvc.Part{agentsvc.TextPart(reason)},
	}
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Rejected, Message: &refusal}}, nil)
	return false
}

// reportAnswers reports the findings of the checks, each once.
func (t *guardedTurn) reportAnswers(answers ...*guardrail.AnswerCheck) {
	for _, a := range answers {
		if a == nil {
			continue
		}
		for _, f := range a.Findings() {
			if !slices.Contains(t.reported, f) {
				t.reported = append(t.reported, f)
				t.reportFindings(t.ctx, t.record, f)
			}
		}
	}
}
