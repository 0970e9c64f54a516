package openai

import (
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
)

// handler answers calls of agents.
type handler struct {
	blockFor time.Duration
}

// handleChat answers with what the agent says: at once as a whole, or piece by piece. A client that leaves before the end ends the
// task, since nothing leads back to it, unless a key says that the same call may be made again.
func (c handler) handleChat(w http.ResponseWriter, r *http.Request) error {
	b, sub, err := admitChat(r)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return err
	}
	t := &eventEncoder{r: r, task: f.Task, includeUsage: b.StreamOptions.IncludeUsage}
	defer func() {
		if r.Context().Err() != nil && !t.ended && sub.Key == "" {
			v.AbandonTask(r.Context(), f.Task)
		}
	}()
	if b.Stream {
		return v.StreamEvents(w, f, surface.StreamEncoder{EncodeEvent: t.encodeEvent, EncodeError: t.encodeStreamError, EndsWhenSettled: true, DoneBody: surface.PlainBody("[DONE]"), NotResumable: true})
	}
	done, err := f.WaitSettled(c.blockFor)
	if err != nil {
		return err
	}
	status, body := t.encodeCompletion(done)
	if status != http.StatusOK {
		w.Header().Set("X-Should-Retry", "false") // the official clients ask again otherwise, which would be another task
	}
	return surface.WriteJSON(w, status, body)
}

// admitChat reads what the caller wants to tell which agent.
func admitChat(r *http.Request) (b chatRequest, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	if b.Model == "" {
		return b, sub, agentsvc.NewInvalidError("model", "is missing: the name of an agent")
	}
	m, wrong := b.toDomain()
	b.Messages = nil
	if sub, err = surface.RequestOf(r).AdmitMessage(r.Context(), b.Model, m, wrong); err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	return b, sub, err
}
