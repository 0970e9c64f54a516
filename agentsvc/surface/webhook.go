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

// ErrNoWebhook says that no webhook has the path. It is also the answer for an app that does not exist.
var ErrNoWebhook error = &responseError{code: NotFound, status: http.StatusNotFound, text: "no such webhook"}

// FindWebhook returns the app's webhook at path (without the app's prefix) for a method. It returns [ErrNoWebhook], or
// a 405 error and sets Allow.
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

// Schedules returns the app's schedules by agent.
func (v *Request) Schedules() map[string]*app.Schedule { return v.runtime.Schedules() }

// Webhooks returns the app's webhooks by path.
func (v *Request) Webhooks() map[string]*app.Webhook { return v.runtime.Webhooks() }

// ReceiveDelivery reads a delivery to a webhook and verifies its signature. It returns the delivery's id, "" if it has
// none, and its body, and makes the trigger's owner the principal of v. It returns [trigger.ErrUnsigned] for a delivery
// that is not signed or wrongly signed. A webhook without a signature is checked like any other anonymous call
// ([pageGuard]).
//
// Anybody can send deliveries, so until the signature is verified the body takes its memory from a separate quota and
// its bytes count against a separate rate: unsigned deliveries cannot use up the app's own. Headers that no body could
// match are refused before the body is read; the signature is computed while it is read.
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
	// The delivery is accepted. Its tasks belong to the trigger, not to a user.
	owner := trigger.TaskOwner(w.Agent)
	v.Principal.Issuer, v.Principal.Subject, v.Principal.Anonymous = owner.Issuer, owner.Subject, false
	if c, ok := v.runtime.Card(w.Agent); ok {
		v.recordAgent(c)
	}
	return id, body, nil
}

// countDeliveryValues is countJSON for a body of another content type: a form has as many values as fields, a text has
// one.
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

// SubmitDelivery submits the message that fill makes of a delivery, and waits for the webhook's ResultTimeout. key
// identifies the delivery: a repeated one returns the task of the first one and repeated = true, and fill is not called
// for it. A new one counts against limits and budgets as any call; the errors are those of reserveUsage, fill and
// [Request.SubmitAndWait].
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
	if errors.Is(err, task.ErrKeyReused) { // a concurrent repetition was faster, with another body
		t, err = v.loadDeliveredTask(ctx, w, key)
		return t, true, err
	}
	return t, false, err
}

// NewCallbackReceiver returns a receiver for the address that a delivery names for its result, nil if the webhook has
// no callback. It returns an [*agentsvc.InvalidError] for an address to which the server must not send.
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
		return nil, errors.New("callbacks are not available in this process")
	}
	r, err := notifier.NewReceiver(v.Principal.Owner(), agentsvc.NewID(), format, notify.Address{URL: address, AppOwned: true})
	if wrong := new(agentsvc.InvalidError); errors.As(err, &wrong) {
		wrong.Field = w.Callback.FieldPath()
	}
	return &r, err
}

// loadDeliveredTask returns the task of a delivery with that key, as it is, or with ResultTimeout as it is once it has
// settled. It returns [agentsvc.ErrNotFound] if there is none.
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
