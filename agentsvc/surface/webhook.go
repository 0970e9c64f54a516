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
var ErrNoWebhook error = &responseError{code: NotFound, status: http.StatusNotFound, text: "no such webhook"}

// FindWebhook returns the app's webhook that listens at a path, as it is without the app's own part, to a method. It returns
// [ErrNoWebhook], or a refusal of the method.
func (v *Request) FindWebhook(method, path string) (*app.Webhook, error) {
	w := v.runtime.Webhooks()[path]
	switch {
	case w == nil:
		return nil, ErrNoWebhook
	case !slices.Contains(w.Methods, method):
		v.record.Header()["Allow"] = w.Methods
		return nil, newMethodError(method)
	}
	return w, nil
}

// Schedules are when the app's agents are started by the clock.
func (v *Request) Schedules() map[string]*app.Schedule { return v.runtime.Schedules() }

// Webhooks are where the app's agents are started by other services, by path.
func (v *Request) Webhooks() map[string]*app.Webhook { return v.runtime.Webhooks() }

// ReceiveDelivery reads a delivery to a webhook and has the visit act for it if its sender has signed it, and returns its id, "" = it has
// none. The signature is computed while the body comes in. Until it is proven the body has none of the app's room but that which
// deliveries without proof share. It returns a [trigger.ErrUnsigned]. Where the webhook asks for no signature, the sender is held to what
// holds for every caller of an open app.
func (v *Request) ReceiveDelivery(r *http.Request, w *app.Webhook) (id string, body []byte, err error) {
	if !w.Signature.IsRequired() {
		if err := v.server.pageGuard.checkRequest(v.credentials, v.address.Host != ""); err != nil {
			return "", nil, err
		}
	}
	proof, err := w.Signature.BeginVerification(r.Header, time.Now())
	if err != nil {
		return "", nil, err
	}
	var unverified bodyReservation
	defer unverified.release()
	body, err = readMetered(io.TeeReader(r.Body, proof), r.ContentLength, v.record.maxBodyBytes, v.record.meterBody(r, &unverified).useUnverifiedPool())
	if err != nil {
		return "", nil, describeReadError(err)
	}
	if id, err = proof.VerifyBody(); err != nil {
		return "", nil, err
	}
	values, err := countDeliveryValues(r.Header.Get("Content-Type"), body)
	if err != nil {
		return "", nil, err
	}
	if err := v.record.bodyReservation.reserveDecoded(r.Context(), v.server.bodyBudget, v.App.ID, len(body), values); err != nil {
		return "", nil, err
	}
	owner := trigger.TaskOwner(w.Agent)
	v.Principal.Issuer, v.Principal.Subject, v.Principal.Anonymous = owner.Issuer, owner.Subject, false
	if c, ok := v.runtime.Card(w.Agent); ok {
		v.recordAgent(c)
	}
	return id, body, nil
}

// countDeliveryValues is countJSON for a body that may be something else by its content type.
func countDeliveryValues(contentType string, body []byte) (values int, err error) {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/x-www-form-urlencoded":
		if values = 1 + bytes.Count(body, []byte("&")); values > maxValues {
			return values, NewTooManyError("fields", maxValues)
		}
		return values, nil
	case strings.HasPrefix(kind, "text/"):
		return 1, nil
	}
	return countJSON(body)
}

// SubmitDelivery submits what a webhook makes of a delivery, under its key, and waits as long as the webhook does. A delivery that
// came before leads to the task that it led to, whatever the webhook would make of it by now; again says so. Limits and
// budgets hold as for any call.
func (v *Request) SubmitDelivery(ctx context.Context, w *app.Webhook, key string, fill func(*task.Submission) error) (t agentsvc.Task, repeated bool, err error) {
	if t, err = v.loadDeliveredTask(ctx, w, key); !errors.Is(err, agentsvc.ErrNotFound) {
		return t, true, err
	}
	sub := task.Submission{Agent: w.Agent, Owner: v.Principal.Owner(), Key: key, Background: w.ResultTimeout == 0}
	if err = fill(&sub); err != nil {
		return t, false, err
	}
	if err := v.reserveUsage(ctx, &sub); err != nil {
		return t, false, err
	}
	t, err = v.SubmitAndWait(ctx, sub, w.ResultTimeout)
	if errors.Is(err, task.ErrKeyReused) { // its twin was faster, with another body
		t, err = v.loadDeliveredTask(ctx, w, key)
		return t, true, err
	}
	return t, false, err
}

// NewCallbackReceiver has the address that the sender of a delivery names told in a form of what comes of it. It returns an
// [agentsvc.InvalidError] for an address that nothing may be sent to, and nil where the webhook calls nobody back.
func (v *Request) NewCallbackReceiver(w *app.Webhook, format, contentType string, body []byte) (*store.Receiver, error) {
	if w.Callback == nil {
		return nil, nil
	}
	address, err := w.Callback.FindAddress(contentType, body)
	if err != nil {
		return nil, err
	}
	notifier := v.runtime.Notifier()
	if notifier == nil {
		return nil, errors.New("nobody can be called back from here")
	}
	r, err := notifier.NewReceiver(v.Principal.Owner(), agentsvc.NewID(), format, notify.Address{URL: address, AppOwned: true})
	if wrong := new(agentsvc.InvalidError); errors.As(err, &wrong) {
		wrong.Field = w.Callback.FieldPath()
	}
	return &r, err
}

// loadDeliveredTask returns the task that a delivery has led to, as it stands, or when it has come to rest where the webhook waits for
// that. It returns an [agentsvc.ErrNotFound] if there is none.
func (v *Request) loadDeliveredTask(ctx context.Context, w *app.Webhook, key string) (agentsvc.Task, error) {
	owner := v.Principal.Owner()
	deadlineCtx, cancel := v.WithDeadline(ctx)
	defer cancel()
	id, err := v.tasks.FindByKey(deadlineCtx, owner, w.Agent, key)
	if err != nil {
		return agentsvc.Task{}, err
	}
	f, err := v.SubscribeTask(ctx, task.Visibility{Agents: []string{w.Agent}, Owner: &owner}, id, nil)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if w.ResultTimeout == 0 {
		f.Close()
		return f.Task, nil
	}
	return f.WaitSettled(w.ResultTimeout)
}
