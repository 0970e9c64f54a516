package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// A response is what a task does after one message or decision until the next message of its user. Its identifier has the
// task's and the sequence of the first event, so a response can be read from the log at any time, and nothing else is
// stored of it. The request that creates a response is answered when the task ends or waits. If the task waits for a
// decision, a credential or a budget and goes on without another request here, the response read later includes that.

const responsePrefix = "resp_"

// newResponseID returns the identifier of the response that begins with an event.
func newResponseID(id agentsvc.TaskID, firstSeq int64) string {
	return fmt.Sprintf("%s%s_%d", responsePrefix, id, firstSeq)
}

// parseResponseID is the inverse of newResponseID.
func parseResponseID(text string) (id agentsvc.TaskID, firstSeq int64, ok bool) {
	text, ok = strings.CutPrefix(text, responsePrefix)
	before, after, _ := strings.Cut(text, "_")
	firstSeq, err := strconv.ParseInt(after, 10, 64)
	return agentsvc.TaskID(before), firstSeq, ok && err == nil && firstSeq > 0
}

// errNoResponse is also the answer for a response that the caller may not know of.
var errNoResponse = agentsvc.NewError(agentsvc.CodeNotFound, "no such response")

// handleCreateResponse answers with a response: as a whole, as a stream of events, or, in the background, as it is when
// its turn has been accepted. If the client disconnects before the end of one that is not in the background, the task is
// cancelled, except with an Idempotency-Key.
func (h handler) handleCreateResponse(w http.ResponseWriter, r *http.Request) error {
	b, sub, err := admitResponse(r)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	f, err := v.SubmitAndSubscribe(r.Context(), sub)
	if err != nil {
		return nameRefusedDecision(err, sub, "input")
	}
	e := newResponseEncoder(surface.RequestID(r), b.Model)
	e.body.Background = b.Background
	defer func() {
		if r.Context().Err() != nil && !e.ended && !b.Background && endsWithClient(sub) {
			v.AbandonTask(r.Context(), f.Task)
		}
	}()
	if b.Stream {
		return v.StreamEvents(w, f, stream.Encoder{EncodeEvent: e.encodeEvent, EncodeError: e.encodeStreamError, NameEvent: nameEvent, EndsWhenSettled: true, NotResumable: true, KeepsFacts: true})
	}
	err = f.ReadFacts(h.blockFor, func(ev agentsvc.Event) bool {
		e.applyEvent(ev)
		return e.ended || b.Background && ev.Status != nil
	})
	switch {
	case err != nil:
		return err
	case !e.ended && !b.Background:
		return e.writeTimeout(w, f.Task.ID)
	}
	return response.WriteJSON(w, http.StatusOK, e.body)
}

// admitResponse is admitChat for a response.
func admitResponse(r *http.Request) (b responseRequest, sub task.Submission, err error) {
	if err := surface.DecodeMessage(r, &b); err != nil {
		return b, sub, err
	}
	if b.Model == "" {
		return b, sub, agentsvc.NewInvalidError("model", "is missing: the name of an agent")
	}
	v := surface.RequestOf(r)
	m, wrong := b.toDomain()
	// A stream may stay open for long; the raw conversation must not stay in memory.
	b.Input = nil
	if wrong == nil && m.Task == "" && b.PreviousResponseID != "" {
		// Authorized first: what a response is found to be must not be learned by callers who may not call the agent.
		if err := v.AuthorizeAgent(r.Context(), authz.AgentsCall, b.Model); err != nil {
			return b, sub, err
		}
		if err := continuePrevious(r.Context(), v, &b, &m); err != nil {
			return b, sub, err
		}
	}
	if sub, err = v.AdmitMessage(r.Context(), b.Model, m, wrong); err == nil {
		err = setKey(r, &sub)
	}
	return b, sub, err
}

// continuePrevious makes m continue the conversation of the previous response, which must be one of the caller's own with
// the same agent. If that ended with a question, m is the answer of the same task, else it opens a task in the same
// context. What the task has done after a next message does not matter: a repeated request must become the same message.
func continuePrevious(ctx context.Context, v *surface.Request, b *responseRequest, m *agentsvc.Message) error {
	ctx, cancel := v.WithDeadline(ctx)
	defer cancel()
	var last agentsvc.State
	t, err := readResponse(ctx, v, v.OwnVisibility(b.Model), b.PreviousResponseID, func(_ agentsvc.Task, ev agentsvc.Event) error {
		if ev.Status != nil {
			last = ev.Status.State
		}
		return nil
	})
	switch {
	case errors.Is(err, errNoResponse):
		return &agentsvc.Error{Code: agentsvc.CodeNotFound, Field: previousKey, Message: "no such response of this agent"}
	case err != nil:
		return err
	case last.IsInterrupted():
		m.Task = t.ID
	default:
		m.Context = t.Context
	}
	return nil
}

// readResponse passes the facts of a response that are on the log to apply, and returns the task. It returns errNoResponse
// for a response that does not exist or is not visible.
func readResponse(ctx context.Context, v *surface.Request, visibility task.Visibility, response string, apply func(t agentsvc.Task, ev agentsvc.Event) error) (agentsvc.Task, error) {
	id, first, ok := parseResponseID(response)
	if !ok {
		return agentsvc.Task{}, errNoResponse
	}
	before := first - 1
	t, events, err := v.Tasks.Reader.Follow(ctx, visibility, id, &before)
	if errors.Is(err, agentsvc.ErrNotFound) || err == nil && first > t.Seq {
		err = errNoResponse
	}
	if err != nil {
		return agentsvc.Task{}, err
	}
	found := false
	for ev, err := range events {
		switch {
		case err != nil:
			return t, err
		case ev.Chunk != nil:
			continue
		case !found && (ev.Seq != first || !opensResponse(ev)):
			return t, errNoResponse
		case found && isUserMessage(ev):
			return t, nil
		}
		found = true
		if err := apply(t, ev); err != nil {
			return t, err
		}
		if ev.Seq >= t.Seq {
			break
		}
	}
	if !found {
		return t, errNoResponse
	}
	return t, nil
}

// opensResponse reports whether a response begins with ev: a new task, a message of the user or a decision.
func opensResponse(ev agentsvc.Event) bool {
	return ev.Seq == 1 || ev.Decision != nil || isUserMessage(ev)
}

// isUserMessage reports whether ev is a message that continues a task.
func isUserMessage(ev agentsvc.Event) bool {
	return ev.Message != nil && ev.Message.Role == agentsvc.RoleUser && ev.Frame == ""
}

// loadResponse returns the response that the path names, as it is now, and the task. wide is the scope for the responses
// of other users.
func loadResponse(r *http.Request, wide authz.Scope) (*responseEncoder, agentsvc.Task, error) {
	v := surface.RequestOf(r)
	visibility, err := v.ResolveVisibility(r.Context(), wide, "")
	if err != nil {
		return nil, agentsvc.Task{}, err
	}
	e := newResponseEncoder(surface.RequestID(r), "")
	t, err := readResponse(r.Context(), v, visibility, surface.PathParam(r, "response"), func(t agentsvc.Task, ev agentsvc.Event) error {
		e.body.Model = t.Agent
		e.resume()
		e.applyEvent(ev)
		return visibility.Memory.ReserveBytes(r.Context(), ev.ByteSize())
	})
	if err == nil {
		// An agent may require a credential of its own, also for its tasks.
		_, err = v.ResolveAgentVisibility(r.Context(), wide, t.Agent)
	}
	return e, t, err
}

// handleGetResponse answers with a response: as it is now, or with stream=true as a stream of its events from the first
// on, which follows a response at work to its end.
func handleGetResponse(w http.ResponseWriter, r *http.Request) error {
	streams, err := decode.ParseBool(r.URL.Query(), "stream")
	if err != nil {
		return err
	}
	if streams && r.URL.Query().Has("starting_after") {
		// Ignored, it would give a client that resumes a stream the same text again.
		return agentsvc.NewInvalidError("starting_after", "is not supported: the stream of a response begins at its first event, and text that was sent in pieces comes back in one")
	}
	// The route has no deadline, since a stream lasts as long as its response.
	ctx, cancel := surface.RequestOf(r).WithDeadline(r.Context())
	defer cancel()
	e, t, err := loadResponse(r.WithContext(ctx), authz.TasksRead)
	if err != nil {
		return err
	}
	if streams {
		return streamResponse(w, r, e, t)
	}
	return response.WriteJSON(w, http.StatusOK, e.body)
}

// streamResponse writes the events of a response as a stream. read has the response and t its task as they are now.
func streamResponse(w http.ResponseWriter, r *http.Request, read *responseEncoder, t agentsvc.Task) error {
	_, first, _ := parseResponseID(read.body.ID)
	v, before := surface.RequestOf(r), first-1
	visibility, err := v.ResolveAgentVisibility(r.Context(), authz.TasksRead, t.Agent)
	if err != nil {
		return err
	}
	f, err := v.SubscribeTask(r.Context(), visibility, t.ID, &before)
	if err != nil {
		return err
	}
	// The stream ends with the event that ends the response, also where the conversation has gone on since.
	if read.ended {
		f.Task.Seq = read.lastSeq
	}
	e := newResponseEncoder(surface.RequestID(r), t.Agent)
	encode := func(ev agentsvc.Event) any {
		e.resume()
		out := e.applyEvent(ev)
		// Where the task has waited and gone on, the response has one end.
		if e.ended && ev.Seq < f.Task.Seq {
			out = out[:len(out)-1]
			e.sequence--
		}
		return out
	}
	return v.StreamEvents(w, f, stream.Encoder{EncodeEvent: encode, EncodeError: e.encodeStreamError, NameEvent: nameEvent, EndsWhenSettled: true, NotResumable: true, KeepsFacts: true})
}

// handleCancelResponse cancels the task of a response that is at work or waits. A response that was cancelled before is
// answered as it is.
func handleCancelResponse(w http.ResponseWriter, r *http.Request) error {
	e, t, err := loadResponse(r, authz.TasksCancel)
	if err != nil {
		return err
	}
	v := surface.RequestOf(r)
	switch {
	case e.body.Status == statusCancelled:
		return response.WriteJSON(w, http.StatusOK, e.body)
	case e.ended && !(e.state.IsInterrupted() && t.Status.State.IsInterrupted()):
		return apierror.ErrNotCancelable
	}
	visibility, err := v.ResolveAgentVisibility(r.Context(), authz.TasksCancel, t.Agent)
	if err == nil {
		_, err = v.CancelTask(r.Context(), visibility, t.ID)
	}
	if err == nil {
		e, _, err = loadResponse(r, authz.TasksCancel)
	}
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, e.body)
}
