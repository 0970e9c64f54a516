package openai

import (
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
)

// caller answers calls of agents.
type caller struct {
	blockFor time.Duration
}

// chat answers with what the agent says: at once as a whole, or piece by piece. A client that leaves before the end ends the
// task, since nothing leads back to it, unless a key says that the same call may be made again.
func (c caller) chat(w http.ResponseWriter, r *http.Request) error {
	b, sub, err := received(r)
	if err != nil {
		return err
	}
	v := surface.VisitOf(r)
	f, err := v.Call(r.Context(), sub)
	if err != nil {
		return err
	}
	t := &teller{r: r, task: f.Task, usage: b.StreamOptions.IncludeUsage}
	defer func() {
		if r.Context().Err() != nil && !t.ended && sub.Key == "" {
			v.Abandon(r.Context(), f.Task)
		}
	}()
	if b.Stream {
		return v.Stream(w, f, surface.Dialect{Event: t.event, Fault: t.broken, Rests: true, Done: surface.Plain("[DONE]"), Single: true})
	}
	done, err := f.Wait(c.blockFor)
	if err != nil {
		return err
	}
	status, body := t.whole(done)
	if status != http.StatusOK {
		w.Header().Set("X-Should-Retry", "false") // the official clients ask again otherwise, which would be another task
	}
	return surface.WriteJSON(w, status, body)
}

// received reads what the caller wants to tell which agent.
func received(r *http.Request) (b request, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	if b.Model == "" {
		return b, sub, agentsvc.Invalid("model", "is missing: the name of an agent")
	}
	m, wrong := b.word()
	b.Messages = nil
	if sub, err = surface.VisitOf(r).Submission(r.Context(), b.Model, m, wrong); err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	return b, sub, err
}
