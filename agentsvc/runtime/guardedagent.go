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
func (w *guardedTurn) handleEvent(ev agentsvc.Event, err error) bool {
	switch {
	case err != nil && w.blocked && w.ctx.Err() == nil:
		return w.rejectTurn(agentsvc.Message{}, "")
	case err != nil:
		w.reportAnswers(w.artifactAnswer, w.answer)
		w.yield(ev, err)
		return false
	// Usage passes in any case, also after a block: it has been spent.
	case ev.Usage != nil:
		return w.yield(ev, nil)
	// The status with a message ends the turn.
	case ev.Status != nil && ev.Status.Message != nil:
		return w.endTurn(ev)
	case ev.Chunk != nil:
		return w.showChunk(*ev.Chunk)
	case ev.Artifact != nil:
		return w.showArtifact(ev)
	// A complete message: release the rest of its text before the tools run that it calls.
	case ev.Message != nil && ev.Message.ID == w.sourceID && !w.finishMessage():
		return false
	case w.blocked:
		return w.rejectTurn(agentsvc.Message{}, "")
	}
	return w.yield(ev, nil)
}

// showChunk releases what the guardrail allows of a chunk.
// If the answer is buffered, endTurn checks it as a whole.
func (w *guardedTurn) showChunk(c agentsvc.Chunk) bool {
	if w.blocked || w.guardrail.BuffersAnswer() {
		return true
	}
	// The agent has begun another message: end the check of the one before.
	if c.Message != w.sourceID {
		if !w.finishMessage() {
			return false
		}
		w.reportAnswers(w.answer)
		w.filteredMessage = filteredMessage{sourceID: c.Message, shownID: agentsvc.MessageID(agentsvc.NewID()), answer: w.guardrail.NewAnswerCheck(w.ctx)}
	}
	// A chunk whose offset does not follow repeats text of an earlier attempt.
	if w.blocked || c.Offset != w.raw.Len() {
		return true
	}
	w.raw.WriteString(c.Text)
	return w.showText(w.answer.CheckText(c.Text).Text)
}

// finishMessage releases the rest of the message that is streamed at present.
func (w *guardedTurn) finishMessage() bool {
	if w.answer == nil || w.ended || w.blocked {
		return true
	}
	w.ended = true
	return w.showText(w.answer.EndAnswer().Text)
}

// showText releases a text as a chunk of the shown message.
func (w *guardedTurn) showText(text string) bool {
	w.blocked = w.blocked || w.answer.IsBlocked()
	if text == "" {
		return true
	}
	c := agentsvc.Chunk{Message: w.shownID, Offset: w.shown.Len(), Text: text}
	w.shown.WriteString(text)
	return w.yield(agentsvc.Event{Chunk: &c}, nil)
}

// showArtifact releases what the guardrail allows of an artifact.
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

// yieldArtifacts releases artifacts that passed the check by. If the check has blocked, its text becomes the reason.
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

// endTurn ends the turn with the final message as the guardrail allows it.
func (w *guardedTurn) endTurn(ev agentsvc.Event) bool {
	msg := *ev.Status.Message
	if !w.blocked && !w.yieldArtifacts(w.artifactAnswer, w.artifactAnswer.EndAnswer()) {
		return false
	}
	if w.blocked {
		return w.rejectTurn(msg, "")
	}
	// The final message is not a continuation of what was streamed: check it from its beginning.
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

// visibleParts returns the allowed parts of the final message: its text, then files and data. ok is false if the
// consumer has stopped. Files and data are checked as an artifact with a reserved id; the NUL in it keeps it apart from
// every other id.
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

// rejectTurn ends the turn as rejected. Its message is reason, or else what was shown, which then ends with the
// guardrail's refusal. Metadata of msg is kept: it is not shown to the caller.
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

// reportAnswers reports the findings of the checks, each once.
func (w *guardedTurn) reportAnswers(answers ...*guardrail.AnswerCheck) {
	for _, a := range answers {
		if a == nil {
			continue
		}
		for _, f := range a.Findings() {
			if !slices.Contains(w.reported, f) {
				w.reported = append(w.reported, f)
				w.reportFindings(w.ctx, w.record, f)
			}
		}
	}
}
