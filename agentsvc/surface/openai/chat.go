package openai

import (
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/sse"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
)

// handler holds the options of the endpoints that wait for a task.
type handler struct {
	blockFor time.Duration // see Options.BlockFor
}

// handleChat answers a chat completion, as a whole or as a stream. If the client disconnects before the end, the
// task is cancelled, since the client has no way to return to it. Requests with an Idempotency-Key, which sent again
// find the same task, and decisions are the exceptions.
func (h handler) handleChat(w http.ResponseWriter, r *http.Request) error {
	b, sub, err := admitChat(r)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return nameRefusedDecision(err, sub, "messages")
	}
	t := &eventEncoder{r: r, task: f.Task, includeUsage: b.StreamOptions.IncludeUsage}
	// A client may also disconnect right after it has received the whole answer; t.ended distinguishes that case.
	defer func() {
		if r.Context().Err() != nil && !t.ended && endsWithClient(sub) {
			v.AbandonTask(r.Context(), f.Task)
		}
	}()
	// NotResumable: clients of this API do not send Last-Event-ID, so a broken stream ends with an error event.
	if b.Stream {
		return v.StreamEvents(w, f, stream.Encoder{EncodeEvent: t.encodeEvent, EncodeError: t.encodeStreamError, EndsWhenSettled: true, DoneBody: sse.PlainBody("[DONE]"), NotResumable: true})
	}
	turn := agentsvc.Task{ID: f.Task.ID, Status: agentsvc.Status{State: agentsvc.Submitted}}
	err = f.ReadFacts(h.blockFor, func(ev agentsvc.Event) bool {
		turn.ApplyEvent(ev)
		return isSettled(ev)
	})
	if err != nil {
		return err
	}
	status, body := t.encodeCompletion(turn)
	if status != http.StatusOK {
		// Otherwise the official clients repeat the request, which would start another task.
		w.Header().Set("X-Should-Retry", "false")
	}
	return response.WriteJSON(w, status, body)
}

// admitChat decodes a request, authorizes the caller for the agent that model names and reserves its budgets and
// limits. Validation errors are passed to [surface.Request.AdmitMessage], which returns them only to callers that
// may call the agent.
func admitChat(r *http.Request) (b chatRequest, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	if b.Model == "" {
		return b, sub, agentsvc.NewInvalidError("model", "is missing: the name of an agent")
	}
	m, wrong := b.toDomain()
	// A stream may stay open for long; the raw conversation must not stay in memory.
	b.Messages = nil
	if sub, err = surface.RequestOf(r).AdmitMessage(r.Context(), b.Model, m, wrong); err == nil {
		err = setKey(r, &sub)
	}
	return b, sub, err
}

// setKey sets the idempotency key of a submission. The message gets the same id, by which the task service finds the
// turn of a repeated message in a task with several.
func setKey(r *http.Request, sub *task.Submission) (err error) {
	sub.Key, err = idempotency.Key(r)
	sub.Message.ID = agentsvc.MessageID(sub.Key)
	return err
}

// endsWithClient reports whether a task is cancelled when the client disconnects before the end of its answer. The task
// of a decision may belong to another user, and work that was approved must not depend on the approver's connection.
func endsWithClient(sub task.Submission) bool { return sub.Key == "" && len(sub.Decisions) == 0 }

// isSettled reports whether ev ends a turn.
func isSettled(ev agentsvc.Event) bool {
	return ev.Status != nil && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted())
}
