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

// agent returns a behind the guard, whatever it is made of: what it is asked is judged before it begins, what it answers
// before anyone sees it.
func (g *guard) agent(a agent.Agent) agent.Agent {
	if g == nil {
		return a
	}
	return guardedWork{a, g}
}

// guardedWork is an agent whose work a guardrail judges as a whole. What those below it say to each other is not its
// answer.
type guardedWork struct {
	agent.Agent
	*guard
}

// Run implements [agent.Agent].
func (a guardedWork) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		v, err := a.rail.Input(ctx, inv.Conversation)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
		if !begun(inv) {
			a.report(ctx, v.Findings...)
		}
		w := work{guard: a.guard, ctx: ctx, yield: yield, task: inv.Task, arts: a.rail.Answer(ctx), frames: map[string]string{}}
		if v.Refusal != "" {
			w.reject(agentsvc.Message{}, v.Refusal)
			return
		}
		inv.Conversation = v.Conversation
		for ev, err := range a.Agent.Run(ctx, inv) {
			if !w.take(ev, err) {
				return
			}
		}
	}
}

// begun reports whether an earlier attempt has got as far as the agents below.
func begun(inv agent.Invocation) bool {
	for frame := range inv.Frames {
		if inv.Frame == "" || strings.HasPrefix(frame, inv.Frame+"/") {
			return true
		}
	}
	return false
}

// work is one turn of a guarded agent.
type work struct {
	*guard
	ctx    context.Context
	yield  func(agentsvc.Event, error) bool
	task   agentsvc.TaskID
	found  []guardrail.Finding // reported
	arts   *guardrail.Answer   // of the artifacts
	kept   []agentsvc.ArtifactUpdate
	frames map[string]string // where artifacts come from
	said
	blocked bool
	why     string // in words, where artifacts are to blame
}

// said is the message that is shown while it is written. What is let through of it has an id of its own: the message
// itself may go on record below, as it is.
type said struct {
	of     agentsvc.MessageID
	as     agentsvc.MessageID
	answer *guardrail.Answer
	raw    strings.Builder
	out    strings.Builder // what was let through
	over   bool
}

// take handles one event. It reports whether the work goes on. After a block the agent may finish what it is saying, so
// that what that cost is known, and does nothing more.
func (w *work) take(ev agentsvc.Event, err error) bool {
	switch {
	case err != nil && w.blocked && w.ctx.Err() == nil:
		return w.reject(agentsvc.Message{}, "")
	case err != nil:
		w.tell(w.arts, w.answer)
		w.yield(ev, err)
		return false
	case ev.Usage != nil:
		return w.yield(ev, nil)
	case ev.Status != nil && ev.Status.Message != nil:
		return w.end(ev)
	case ev.Chunk != nil:
		return w.chunk(*ev.Chunk)
	case ev.Artifact != nil:
		return w.artifact(ev)
	case ev.Message != nil && ev.Message.ID == w.of && !w.finish(): // before the tools run that it calls
		return false
	case w.blocked:
		return w.reject(agentsvc.Message{}, "")
	}
	return w.yield(ev, nil)
}

// chunk shows what may be seen of a piece of a message.
func (w *work) chunk(c agentsvc.Chunk) bool {
	if w.blocked || w.rail.Whole() {
		return true
	}
	if c.Message != w.of {
		if !w.finish() {
			return false
		}
		w.tell(w.answer)
		w.said = said{of: c.Message, as: agentsvc.MessageID(agentsvc.NewID()), answer: w.rail.Answer(w.ctx)}
	}
	if w.blocked || c.Offset != w.raw.Len() {
		return true
	}
	w.raw.WriteString(c.Text)
	return w.show(w.answer.Text(c.Text).Text)
}

// finish shows the rest of the message that is being written.
func (w *work) finish() bool {
	if w.answer == nil || w.over || w.blocked {
		return true
	}
	w.over = true
	return w.show(w.answer.End().Text)
}

func (w *work) show(text string) bool {
	w.blocked = w.blocked || w.answer.Blocked()
	if text == "" {
		return true
	}
	c := agentsvc.Chunk{Message: w.as, Offset: w.out.Len(), Text: text}
	w.out.WriteString(text)
	return w.yield(agentsvc.Event{Chunk: &c}, nil)
}

// artifact shows what may be seen of an artifact.
func (w *work) artifact(ev agentsvc.Event) bool {
	if w.blocked {
		return true
	}
	w.frames[ev.Artifact.Artifact.ID] = ev.Frame
	if w.rail.Whole() {
		w.kept = append(w.kept, *ev.Artifact)
		return true
	}
	return w.artifacts(w.arts, w.arts.Artifact(*ev.Artifact))
}

// artifacts passes on what passed of artifacts.
func (w *work) artifacts(by *guardrail.Answer, p guardrail.Passed) bool {
	if by.Blocked() && !w.blocked {
		w.blocked, w.why = true, p.Text
	}
	for i, up := range p.Artifacts {
		if !w.yield(agentsvc.Event{Frame: w.frames[up.Artifact.ID], Artifact: &p.Artifacts[i]}, nil) {
			return false
		}
	}
	return true
}

// end ends the turn with what may be seen of its answer.
func (w *work) end(ev agentsvc.Event) bool {
	msg := *ev.Status.Message
	if !w.blocked && !w.artifacts(w.arts, w.arts.End()) {
		return false
	}
	if w.blocked {
		return w.reject(msg, "")
	}
	if w.answer == nil || msg.ID != w.of || !strings.HasPrefix(msg.Text(), w.raw.String()) || w.over && len(msg.Text()) > w.raw.Len() {
		w.tell(w.answer)
		w.said = said{answer: w.rail.Answer(w.ctx)}
	}
	for _, up := range w.kept {
		w.answer.Artifact(up)
	}
	parts, ok := w.judged(msg)
	if !ok {
		return false
	}
	w.tell(w.arts, w.answer)
	if w.answer.Blocked() {
		return w.reject(msg, "")
	}
	if w.as != "" {
		msg.ID = w.as
	}
	msg.Parts = parts
	ev.Status = &agentsvc.Status{State: ev.Status.State, Message: &msg}
	w.yield(ev, nil)
	return false
}

// judged returns what may be seen of the parts of the last message: its text, then the rest.
func (w *work) judged(msg agentsvc.Message) (parts []agentsvc.Part, ok bool) {
	const rest = "\x00the parts of a message"
	up := agentsvc.ArtifactUpdate{Last: true, Artifact: agentsvc.Artifact{ID: rest}}
	for _, p := range msg.Parts {
		if p.File != nil || p.Data != nil {
			up.Artifact.Parts = append(up.Artifact.Parts, p)
		}
	}
	passed := []guardrail.Passed{w.answer.Text(msg.Text()[w.raw.Len():])}
	if len(up.Artifact.Parts) > 0 {
		passed = append(passed, w.answer.Artifact(up))
	}
	if !w.over {
		passed = append(passed, w.answer.End())
	}
	for _, p := range passed {
		w.out.WriteString(p.Text)
		for i, a := range p.Artifacts {
			if a.Artifact.ID == rest {
				parts = append(parts, a.Artifact.Parts...)
			} else if !w.yield(agentsvc.Event{Frame: w.frames[a.Artifact.ID], Artifact: &p.Artifacts[i]}, nil) {
				return nil, false
			}
		}
	}
	text := w.out.String()
	if text == msg.Text() && len(up.Artifact.Parts) == 0 {
		return msg.Parts, true
	}
	if text != "" || len(parts) == 0 {
		parts = append([]agentsvc.Part{agentsvc.TextPart(text)}, parts...)
	}
	return parts, true
}

// reject ends the turn: with why, or with what was shown, which ends with words that say so. The message keeps what is
// not for the caller.
func (w *work) reject(msg agentsvc.Message, why string) bool {
	w.tell(w.arts, w.answer)
	if err := w.ctx.Err(); err != nil {
		w.yield(agentsvc.Event{}, err)
		return false
	}
	if why == "" {
		why = w.out.String()
	}
	if w.why != "" {
		if why != "" {
			why += "\n\n"
		}
		why += w.why
	}
	id := w.as
	if id == "" {
		id = agentsvc.MessageID(agentsvc.NewID())
	}
	refusal := agentsvc.Message{
		ID: id, Task: w.task, Role: agentsvc.RoleAgent, Metadata: msg.Metadata, Parts: []agentsvc.Part{agentsvc.TextPart(why)},
	}
	w.yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Rejected, Message: &refusal}}, nil)
	return false
}

// tell reports what answers were found to hold, each kind once.
func (w *work) tell(answers ...*guardrail.Answer) {
	for _, a := range answers {
		if a == nil {
			continue
		}
		for _, f := range a.Findings() {
			if !slices.Contains(w.found, f) {
				w.found = append(w.found, f)
				w.report(w.ctx, f)
			}
		}
	}
}
