package v1

import (
	"cmp"
	"context"
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/authz"
)

// handleSocket opens a WebSocket to an agent for whoever may send it messages or decide on its tool calls.
func handleSocket(w http.ResponseWriter, r *http.Request) error {
	v, agent := surface.RequestOf(r), surface.PathParam(r, "agent")
	if v.Authorize(r.Context(), authz.TasksApprove, agent, "") != nil {
		if err := v.Authorize(r.Context(), authz.AgentsCall, agent, ""); err != nil {
			return err
		}
	}
	if _, err := v.FindAgent(agent); err != nil {
		return err
	}
	return v.ServeWebSocket(w, r, func(r *http.Request, decode func(any) error) (surface.StreamEncoder, func(context.Context, *surface.Request) (*surface.Subscription, error)) {
		var b sendBody
		err := decode(&b)
		id := ""
		if b.Message != nil {
			id = cmp.Or(b.Message.MessageID, b.Message.MessageIDSnake)
		}
		t := &eventEncoder{r: r}
		return t.frameFormat(id), func(ctx context.Context, v *surface.Request) (*surface.Subscription, error) {
			if err != nil {
				return nil, err
			}
			sub, err := b.admitMessage(ctx, v, agent)
			if err != nil {
				return nil, err
			}
			f, err := v.SubmitAndSubscribe(ctx, sub)
			if err == nil {
				t.context = f.Task.Context
			}
			return f, err
		}
	})
}
