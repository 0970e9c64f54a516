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
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
)

// handler holds the options that the handlers of message:send need.
type handler struct {
	blockFor time.Duration // see Options.BlockFor
}

// handleSend answers message:send. With configuration.blocking the answer is the task when it has ended, needs
// input, or blockFor is over; otherwise the task as it was accepted. If the agent answered with a message instead
// of a task, a blocking caller receives that message alone.
func (h handler) handleSend(w http.ResponseWriter, r *http.Request) error {
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
		length = new(int) // no history: the client knows the message that it sends
	}
	if err := decode.CheckHistoryLength("configuration.historyLength", *length); err != nil {
		return err
	}
	timeout := time.Duration(0)
	if o.Blocking {
		timeout = h.blockFor
	}
	t, err := surface.RequestOf(r).SubmitAndWait(r.Context(), sub, timeout)
	if err != nil {
		return err
	}
	if m := t.Status.StandaloneReply(); m != nil && o.Blocking {
		return response.WriteJSON(w, http.StatusOK, event{Msg: newReply(*m, t.Context)})
	}
	return response.WriteJSON(w, http.StatusOK, taskAnswer{newTask(t, length, o.IncludeArtifacts || o.IncludeArtifactsSnake)})
}

// handleStream answers message:stream with the task's events until it ends or needs input. The format is checked
// before the message is admitted, so that a wrong format reserves nothing and starts no task. A client that reads
// too slowly is disconnected (sse.Options.PieceTimeout) and can resume with handleSubscribe.
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

// admitCall decodes the body, authorizes the caller and reserves its budgets and limits. The agent is that of the
// path or, for /v1/message:send, of the header agent-name. The returned body no longer holds the message: a stream
// may stay open for hours and must not keep it in memory.
func admitCall(r *http.Request) (b sendBody, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	agent := cmp.Or(surface.PathParam(r, "agent"), r.Header.Get("agent-name"))
	if agent == "" {
		return b, sub, agentsvc.NewInvalidError("agent-name", "is missing: the header that names the agent")
	}
	if sub, err = b.admitMessage(r.Context(), surface.RequestOf(r), agent); err == nil {
		sub.Key, err = idempotency.Key(r)
	}
	b.Message = nil
	return b, sub, err
}

// admitMessage authorizes the caller of v to send b to agent and returns what is to be submitted. It returns an
// error if b names another tenant or agent. A validation error is passed to [surface.Request.AdmitMessage], which
// returns it only to callers that may call the agent.
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
		// This surface has no push notifications. A config that was ignored would leave the client waiting for
		// them.
		wrong = apierror.ErrNoPush
	}
	return v.AdmitMessage(ctx, agent, m, wrong)
}

// streamFormats are the formats of streams under the names by which a client selects one.
var streamFormats = map[string]func(*eventEncoder) stream.Encoder{"message": (*eventEncoder).messageFormat, "response": (*eventEncoder).responseFormat}

// negotiateFormat returns the format that the client selects: by the query parameter format, else by the parameter
// profile of text/event-stream in Accept, else message. An unknown name is an error with [agentsvc.CodeInvalid].
func negotiateFormat(r *http.Request) (func(*eventEncoder) stream.Encoder, error) {
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

// acceptedProfile returns the parameter profile of the first text/event-stream in the Accept headers that has one,
// "" if there is none. A media type that does not parse is skipped.
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
