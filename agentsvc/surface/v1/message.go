package v1

import (
	"cmp"
	"context"
	"mime"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
)

// caller answers calls of agents.
type caller struct {
	blockFor time.Duration
}

// send answers with the task: as it was accepted, or for a caller who wants to wait as it ends or comes to wait for
// somebody. Who waits is told of an answer that stands alone instead of its task.
func (c caller) send(w http.ResponseWriter, r *http.Request) error {
	b, sub, err := received(r)
	if err != nil {
		return err
	}
	o := b.Configuration
	length := o.HistoryLength
	if length == nil {
		length = o.HistoryLengthSnake
	}
	if length == nil {
		length = new(int) // who sends a message knows what was said
	}
	if err := surface.CheckLength("configuration.historyLength", *length); err != nil {
		return err
	}
	patience := time.Duration(0)
	if o.Blocking {
		patience = c.blockFor
	}
	t, err := surface.VisitOf(r).Send(r.Context(), sub, patience)
	if err != nil {
		return err
	}
	if m := t.Status.Reply(); m != nil && o.Blocking {
		return surface.WriteJSON(w, http.StatusOK, event{Msg: newReply(*m, t.Context)})
	}
	return surface.WriteJSON(w, http.StatusOK, taskAnswer{newTask(t, length, o.IncludeArtifacts || o.IncludeArtifactsSnake)})
}

// stream answers with the task's events until it ends or waits for somebody.
func stream(w http.ResponseWriter, r *http.Request) error {
	shape, err := shapeOf(r)
	if err != nil {
		return err
	}
	_, sub, err := received(r)
	if err != nil {
		return err
	}
	v := surface.VisitOf(r)
	f, err := v.Call(r.Context(), sub)
	if err != nil {
		return err
	}
	d := shape(&teller{r: r, context: f.Task.Context})
	d.Rests = true
	return v.Stream(w, f, d)
}

// received reads what the caller wants to tell the agent, which the path names or else a header.
func received(r *http.Request) (b sendBody, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	agent := cmp.Or(surface.Param(r, "agent"), r.Header.Get("agent-name"))
	if agent == "" {
		return b, sub, agentsvc.Invalid("agent-name", "is missing: the header that names the agent")
	}
	if sub, err = b.submission(r.Context(), surface.VisitOf(r), agent); err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	b.Message = nil
	return b, sub, err
}

// submission admits a visitor to tell an agent b, which must be for that agent.
func (b *sendBody) submission(ctx context.Context, v *surface.Visit, agent string) (task.Submission, error) {
	if err := v.Named(b.Tenant, agent); err != nil {
		return task.Submission{}, err
	}
	var m agentsvc.Message
	wrong := agentsvc.Invalid("message", "is missing")
	if b.Message != nil {
		m, wrong = b.Message.word()
	}
	if wrong == nil && b.Configuration.Given() != nil {
		wrong = surface.ErrNoPush
	}
	return v.Submission(ctx, agent, m, wrong)
}

// shapes are the shapes of streams, under the names by which a client chooses one.
var shapes = map[string]func(*teller) surface.Dialect{"message": (*teller).messages, "response": (*teller).responses}

// shapeOf returns the shape that a client wants: what the query says, else a parameter of the media type it accepts.
func shapeOf(r *http.Request) (func(*teller) surface.Dialect, error) {
	name, field := r.URL.Query().Get("format"), "format"
	if name == "" {
		name, field = profile(r), "Accept"
	}
	shape := shapes[cmp.Or(name, "message")]
	if shape == nil {
		return nil, agentsvc.Invalid(field, "unknown shape %.40q of streams: message or response", name)
	}
	return shape, nil
}

// profile returns the profile of server-sent events that a client accepts, "" if it names none.
func profile(r *http.Request) string {
	for _, line := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(line, ",") {
			if name, params, err := mime.ParseMediaType(kind); err == nil && name == "text/event-stream" && params["profile"] != "" {
				return params["profile"]
			}
		}
	}
	return ""
}
