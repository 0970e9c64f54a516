package v1

import (
	"cmp"
	"context"
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/stream"
	"stoa/authz"
)

// handleSocket upgrades to a WebSocket. Opening it needs permission to call the agent or to decide on its tool
// calls. Each text frame is then a request of its own: package surface authenticates again, and admitMessage
// authorizes and counts the message, so that a revoked credential or a used-up budget acts at the next message.
//
// The function passed to ServeWebSocket is called once per frame. It first decodes, because the ID of the client's
// message is needed even for an error; the function that it returns submits the message.
func handleSocket(w http.ResponseWriter, r *http.Request) error {
	v, agent := surface.RequestOf(r), surface.PathParam(r, "agent")
	if v.Authorize(r.Context(), authz.TasksApprove, agent) != nil {
		if err := v.Authorize(r.Context(), authz.AgentsCall, agent); err != nil {
			return err
		}
	}
	if _, err := v.FindAgent(agent); err != nil {
		return err
	}
	return v.ServeWebSocket(w, r, func(r *http.Request, decode func(any) error) (stream.Encoder, func(context.Context, *surface.Request) (*stream.Subscription, error)) {
		var b sendBody
		err := decode(&b)
		id := ""
		if b.Message != nil {
			id = cmp.Or(b.Message.MessageID, b.Message.MessageIDSnake)
		}
		// The context of the task is known only after the submission, before the first event is encoded.
		t := &eventEncoder{r: r}
		return t.frameFormat(id), func(ctx context.Context, v *surface.Request) (*stream.Subscription, error) {
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
