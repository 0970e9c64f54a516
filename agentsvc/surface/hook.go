package surface

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
)

// ErrNoWebhook says that no webhook listens at a path, in whatever app, or in none.
var ErrNoWebhook error = &refusal{code: NotFound, status: http.StatusNotFound, text: "no such webhook"}

// Webhook returns the app's webhook that listens at a path, as it is without the app's own part, to a method. It returns
// [ErrNoWebhook], or a refusal of the method.
func (v *Visit) Webhook(method, path string) (*app.Webhook, error) {
	w := v.house.Webhooks()[path]
	switch {
	case w == nil:
		return nil, ErrNoWebhook
	case !slices.Contains(w.Methods, method):
		v.rec.Header()["Allow"] = w.Methods
		return nil, wrongMethod(method)
	}
	return w, nil
}

// Schedules are when the app's agents are started by the clock.
func (v *Visit) Schedules() map[string]*app.Schedule { return v.house.Schedules() }

// Webhooks are where the app's agents are started by other services, by path.
func (v *Visit) Webhooks() map[string]*app.Webhook { return v.house.Webhooks() }

// Receive reads a delivery to a webhook and has the visit act for it if its sender has signed it, and returns its id, "" = it has
// none. The signature is computed while the body comes in. Until it is proven the body has none of the app's room but that which
// deliveries without proof share. It returns a [trigger.ErrUnsigned]. Where the webhook asks for no signature, the sender is held to what
// holds for every caller of an open app.
func (v *Visit) Receive(r *http.Request, w *app.Webhook) (id string, body []byte, err error) {
	if !w.Signature.Required() {
		if err := v.server.pages.check(v.knock, v.address.Host != ""); err != nil {
			return "", nil, err
		}
	}
	proof, err := w.Signature.Begin(r.Header, time.Now())
	if err != nil {
		return "", nil, err
	}
	var unproven hold
	defer unproven.release()
	body, err = takeBody(io.TeeReader(r.Body, proof), r.ContentLength, v.rec.most, v.rec.arrival(r, &unproven).unproven())
	if err != nil {
		return "", nil, unread(err)
	}
	if id, err = proof.End(); err != nil {
		return "", nil, err
	}
	values, err := countDelivery(r.Header.Get("Content-Type"), body)
	if err != nil {
		return "", nil, err
	}
	if err := v.rec.held.takeValues(r.Context(), v.server.rooms, v.App.ID, len(body), values); err != nil {
		return "", nil, err
	}
	owner := trigger.Owner(w.Agent)
	v.Principal.Issuer, v.Principal.Subject, v.Principal.Anonymous = owner.Issuer, owner.Subject, false
	if c, ok := v.house.Card(w.Agent); ok {
		v.about(c)
	}
	return id, body, nil
}

// countDelivery is countJSON for a body that may be something else by its content type.
func countDelivery(contentType string, body []byte) (values int, err error) {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/x-www-form-urlencoded":
		if values = 1 + bytes.Count(body, []byte("&")); values > maxValues {
			return values, TooMany("fields", maxValues)
		}
		return values, nil
	case strings.HasPrefix(kind, "text/"):
		return 1, nil
	}
	return countJSON(body)
}

// Deliver submits what a webhook makes of a delivery, under its key, and waits as long as the webhook does. A delivery that
// came before leads to the task that it led to, whatever the webhook would make of it by now; again says so. Limits and
// budgets hold as for any call.
func (v *Visit) Deliver(ctx context.Context, w *app.Webhook, key string, fill func(*task.Submission) error) (t agentsvc.Task, again bool, err error) {
	if t, err = v.delivered(ctx, w, key); !errors.Is(err, agentsvc.ErrNotFound) {
		return t, true, err
	}
	sub := task.Submission{Agent: w.Agent, Owner: v.Principal.Owner(), Key: key, Unasked: w.Waits == 0}
	if err = fill(&sub); err != nil {
		return t, false, err
	}
	if err := v.reserve(ctx, &sub); err != nil {
		return t, false, err
	}
	t, err = v.Send(ctx, sub, w.Waits)
	if errors.Is(err, task.ErrKeyReused) { // its twin was faster, with another body
		t, err = v.delivered(ctx, w, key)
		return t, true, err
	}
	return t, false, err
}

// CallBack has the address that the sender of a delivery names told in a form of what comes of it. It returns an
// [agentsvc.InvalidError] for an address that nothing may be sent to, and nil where the webhook calls nobody back.
func (v *Visit) CallBack(w *app.Webhook, form, contentType string, body []byte) (*store.Receiver, error) {
	if w.Callback == nil {
		return nil, nil
	}
	address, err := w.Callback.Address(contentType, body)
	if err != nil {
		return nil, err
	}
	desk := v.house.Desk()
	if desk == nil {
		return nil, errors.New("nobody can be called back from here")
	}
	r, err := desk.Receiver(v.Principal.Owner(), agentsvc.NewID(), form, notify.Address{URL: address, Own: true})
	if wrong := new(agentsvc.InvalidError); errors.As(err, &wrong) {
		wrong.Field = w.Callback.At()
	}
	return &r, err
}

// delivered returns the task that a delivery has led to, as it stands, or when it has come to rest where the webhook waits for
// that. It returns an [agentsvc.ErrNotFound] if there is none.
func (v *Visit) delivered(ctx context.Context, w *app.Webhook, key string) (agentsvc.Task, error) {
	owner := v.Principal.Owner()
	soon, cancel := v.InTime(ctx)
	defer cancel()
	id, err := v.tasks.Keyed(soon, owner, w.Agent, key)
	if err != nil {
		return agentsvc.Task{}, err
	}
	f, err := v.Follow(ctx, task.Reach{Agents: []string{w.Agent}, Owner: &owner}, id, nil)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if w.Waits == 0 {
		f.Close()
		return f.Task, nil
	}
	return f.Wait(w.Waits)
}
