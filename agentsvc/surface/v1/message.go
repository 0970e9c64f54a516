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

// handler answers calls of agents.
type handler struct {
	blockFor time.Duration
}

// handleSend answers with the task: as it was accepted, or for a caller who wants to wait as it ends or comes to wait for
// somebody. Who waits is told of an answer that stands alone instead of its task.
func (c handler) handleSend(w http.ResponseWriter, r *http.Request) error {
	b, sub, err := admitCall(r)
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
	if err := surface.CheckHistoryLength("configuration.historyLength", *length); err != nil {
		return err
	}
	timeout := time.Duration(0)
	if o.Blocking {
		timeout = c.blockFor
	}
	t, err := surface.RequestOf(r).SubmitAndWait(r.Context(), sub, timeout)
	if err != nil {
		return err
	}
	if m := t.Status.StandaloneReply(); m != nil && o.Blocking {
		return surface.WriteJSON(w, http.StatusOK, event{Msg: newReply(*m, t.Context)})
	}
	return surface.WriteJSON(w, http.StatusOK, taskAnswer{newTask(t, length, o.IncludeArtifacts || o.IncludeArtifactsSnake)})
}

// handleStream answers with the task's events until it ends or waits for somebody.
func handleStream(w http.ResponseWriter, r *http.Request) error {
	format, err := negotiateFormat(r)
	if err != nil {
		return err
	}
	_, sub, err := admitCall(r)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return err
	}
	d := format(&eventEncoder{r: r, context: f.Task.Context})
	d.EndsWhenSettled = true
	return v.StreamEvents(w, f, d)
}

// admitCall reads what the caller wants to tell the agent, which the path names or else a header.
func admitCall(r *http.Request) (b sendBody, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	agent := cmp.Or(surface.PathParam(r, "agent"), r.Header.Get("agent-name"))
	if agent == "" {
		return b, sub, agentsvc.NewInvalidError("agent-name", "is missing: the header that names the agent")
	}
	if sub, err = b.admitMessage(r.Context(), surface.RequestOf(r), agent); err == nil {
		sub.Key, err = surface.IdempotencyKey(r)
	}
	b.Message = nil
	return b, sub, err
}

// admitMessage admits a visitor to tell an agent b, which must be for that agent.
func (b *sendBody) admitMessage(ctx context.Context, v *surface.Request, agent string) (task.Submission, error) {
	if err := v.CheckTenant(b.Tenant, agent); err != nil {
		return task.Submission{}, err
	}
	var m agentsvc.Message
	wrong := agentsvc.NewInvalidError("message", "is missing")
	if b.Message != nil {
		m, wrong = b.Message.toDomain()
	}
	if wrong == nil && b.Configuration.FirstConfig() != nil {
		wrong = surface.ErrNoPush
	}
	return v.AdmitMessage(ctx, agent, m, wrong)
}

// streamFormats are the shapes of streams, under the names by which a client chooses one.
var streamFormats = map[string]func(*eventEncoder) surface.StreamEncoder{"message": (*eventEncoder).messageFormat, "response": (*eventEncoder).responseFormat}

// negotiateFormat returns the shape that a client wants: what the query says, else a parameter of the media type it accepts.
func negotiateFormat(r *http.Request) (func(*eventEncoder) surface.StreamEncoder, error) {
	name, field := r.URL.Query().Get("format"), "format"
	if name == "" {
		name, field = acceptedProfile(r), "Accept"
	}
	format := streamFormats[cmp.Or(name, "message")]
	if format == nil {
		return nil, agentsvc.NewInvalidError(field, "unknown shape %.40q of streams: message or response", name)
	}
	return format, nil
}

// acceptedProfile returns the profile of server-sent events that a client accepts, "" if it names none.
func acceptedProfile(r *http.Request) string {
	for _, line := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(line, ",") {
			if name, params, err := mime.ParseMediaType(kind); err == nil && name == "text/event-stream" && params["profile"] != "" {
				return params["profile"]
			}
		}
	}
	return ""
}
