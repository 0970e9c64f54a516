package v1

import (
	"cmp"
	"context"
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/authz"
)

// converse opens a WebSocket to an agent for whoever may send it messages or decide on its tool calls.
func converse(w http.ResponseWriter, r *http.Request) error {
	v, agent := surface.VisitOf(r), surface.Param(r, "agent")
	if v.Admit(r.Context(), authz.TasksApprove, agent, "") != nil {
		if err := v.Admit(r.Context(), authz.AgentsCall, agent, ""); err != nil {
			return err
		}
	}
	if _, err := v.Callee(agent); err != nil {
		return err
	}
	return v.Converse(w, r, func(r *http.Request, decode func(any) error) (surface.Dialect, func(context.Context, *surface.Visit) (*surface.Following, error)) {
		var b sendBody
		err := decode(&b)
		id := ""
		if b.Message != nil {
			id = cmp.Or(b.Message.MessageID, b.Message.MessageIDSnake)
		}
		t := &teller{r: r}
		return t.frames(id), func(ctx context.Context, v *surface.Visit) (*surface.Following, error) {
			if err != nil {
				return nil, err
			}
			sub, err := b.submission(ctx, v, agent)
			if err != nil {
				return nil, err
			}
			f, err := v.Call(ctx, sub)
			if err == nil {
				t.context = f.Task.Context
			}
			return f, err
		}
	})
}
