package webhook

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
)

// delivery is a verified request to a webhook. The body of a GET or HEAD without one is its query as JSON; the signature
// is that of the body as it was sent, which is empty.
type delivery struct {
	id          trigger.DeliveryID
	contentType string
	body        []byte
}

// receiveDelivery reads a delivery to a webhook, verifies its signature, and makes the trigger's owner the principal of
// v. It returns [trigger.ErrUnsigned] for a delivery that is not signed or wrongly signed. A webhook without a signature
// is checked like any other anonymous call ([surface.Access.CheckPage]).
//
// Anybody can send deliveries, so until the signature is verified the body takes its memory from a separate quota and
// its bytes count against a separate rate: unsigned deliveries cannot use up the app's own. Headers that no body could
// match are refused before the body is read; the signature is computed while it is read.
func receiveDelivery(r *http.Request, v *surface.Request, w *runtime.Webhook) (d delivery, err error) {
	if !w.Signature.IsRequired() {
		if err := v.CheckPage(r.Method); err != nil {
			return d, err
		}
	}
	proof, err := w.Signature.BeginVerification(r.Header, time.Now())
	if err != nil {
		return d, err
	}
	body, release, err := surface.BodyOf(r).ReadUnverified(r, proof)
	if err != nil {
		return d, err
	}
	defer release()
	d = delivery{contentType: r.Header.Get("Content-Type"), body: body}
	if d.id, err = proof.VerifyBody(); err != nil {
		return d, err
	}
	if len(body) == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		if body, err = trigger.EncodeQuery(r.URL.RawQuery); err != nil {
			return d, err
		}
		d.contentType, d.body = "application/json", body
	}
	values := 1 // of a body that is not decoded
	if !w.Input.IsStatic() || w.Callback != nil {
		if values, err = countDeliveryValues(d.contentType, body); err != nil {
			return d, err
		}
	}
	if err := surface.BodyOf(r).Reserve(r.Context(), len(body), values); err != nil {
		return d, err
	}
	// The delivery is accepted. Its tasks belong to the trigger, not to a user.
	owner := trigger.TaskOwner(w.Agent)
	v.Principal.Issuer, v.Principal.Subject, v.Principal.Anonymous = owner.Issuer, owner.Subject, false
	if c, ok := v.Runtime.Card(w.Agent); ok {
		v.RecordAgent(c)
	}
	return d, nil
}

// countDeliveryValues is CountValues for a body of another content type: a form has as many values as fields, a text has
// one.
func countDeliveryValues(contentType string, body []byte) (values int, err error) {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/x-www-form-urlencoded":
		if values = 1 + bytes.Count(body, []byte("&")); values > decode.MaxValues {
			return values, apierror.NewTooManyError("fields", decode.MaxValues)
		}
		return values, nil
	case strings.HasPrefix(kind, "text/"):
		return 1, nil
	}
	return decode.CountValues(body)
}

// submitOnce submits the message of a delivery, and waits for the webhook's ResultTimeout. A delivery that is repeated
// under its id gets the task of the first one, and repeated = true; if the webhook has a callback, the result is posted
// for it as well. The task is looked up before the message is made, so that it is found also if the webhook's template
// has changed since. A new delivery counts against limits and budgets as any call; the errors are those of
// [surface.Request.AdmitCall], fillSubmission and [surface.Request.SubmitAndWait].
func submitOnce(ctx context.Context, v *surface.Request, w *runtime.Webhook, d delivery) (t agentsvc.Task, repeated bool, err error) {
	sub := task.Submission{Agent: w.Agent, Owner: v.Principal.Owner(), Roles: v.Principal.Roles, Key: d.id.Key(d.body), Background: w.ResultTimeout == 0}
	if sub.Key != "" {
		t, err = loadDeliveredTask(ctx, v, w, d, sub.Key)
		if decided, repeated, err := lookupResult(err); decided {
			return t, repeated, err
		}
	}
	if err = fillSubmission(ctx, &sub, v, w, d); err != nil {
		return t, false, err
	}
	if err := v.AdmitCall(ctx, &sub); err != nil {
		return t, false, err
	}
	t, err = v.SubmitAndWait(ctx, sub, w.ResultTimeout)
	if errors.Is(err, task.ErrKeyReused) { // a concurrent repetition was faster, with another body
		t, err = loadDeliveredTask(ctx, v, w, d, sub.Key)
		return t, err == nil, err
	}
	return t, false, toCallbackError(err)
}

// fillSubmission sets the message that the webhook makes of a delivery, and where its result is posted.
func fillSubmission(ctx context.Context, sub *task.Submission, v *surface.Request, w *runtime.Webhook, d delivery) error {
	text, err := w.Input.BuildMessage(ctx, d.contentType, d.body)
	if err != nil {
		return err
	}
	sub.Message.Parts, sub.Message.Metadata = []agentsvc.Part{agentsvc.TextPart(text)}, map[string]any{"trigger": "webhook"}
	sub.Receiver, err = newCallbackReceiver(v, w, d)
	return err
}

// lookupResult returns what follows for a delivery from the error of looking up its task: whether it is decided, whether
// the delivery is repeated, and its error. A delivery whose task is not found is new.
func lookupResult(err error) (decided, repeated bool, _ error) {
	if errors.Is(err, agentsvc.ErrNotFound) {
		return false, false, nil
	}
	return true, err == nil, err
}

// newCallbackReceiver returns a receiver for the address that a delivery names for its result, nil if the webhook has
// no callback. It returns an error with [agentsvc.CodeInvalid] for an address to which the server must not send.
func newCallbackReceiver(v *surface.Request, w *runtime.Webhook, d delivery) (*receiver.Receiver, error) {
	if w.Callback == nil {
		return nil, nil
	}
	address, err := w.Callback.FindAddress(d.contentType, d.body)
	if err != nil {
		return nil, err
	}
	notifier := v.Runtime.Notifier()
	if notifier == nil {
		return nil, errors.New("callbacks are not available in this process")
	}
	r, err := notifier.NewReceiver(v.Principal.Owner(), agentsvc.NewID(), callbackFormat, notify.Address{URL: address, AppOwned: true})
	if wrong := new(agentsvc.Error); errors.As(err, &wrong) {
		wrong.Field = w.Callback.FieldPath()
	}
	r.FromStart = true
	return &r, err
}

// loadDeliveredTask returns the task of the first delivery with a key, as it is, or with ResultTimeout as it is once it
// has settled, and registers the callback of d. It returns [agentsvc.ErrNotFound] if there is none.
func loadDeliveredTask(ctx context.Context, v *surface.Request, w *runtime.Webhook, d delivery, key string) (agentsvc.Task, error) {
	deadlineCtx, cancel := v.WithDeadline(ctx)
	defer cancel()
	id, err := v.Tasks.Reader.FindByKey(deadlineCtx, v.Principal.Owner(), w.Agent, key)
	if err == nil {
		err = addCallback(deadlineCtx, v, w, d, id)
	}
	if err != nil {
		return agentsvc.Task{}, err
	}
	f, err := v.SubscribeTask(ctx, v.OwnVisibility(w.Agent), id, nil)
	if err != nil {
		return agentsvc.Task{}, err
	}
	if w.ResultTimeout == 0 {
		f.Close()
		return f.Task, nil
	}
	return f.WaitSettled(w.ResultTimeout)
}

// addCallback registers the address that a repeated delivery names for the result of its task, if the webhook has a
// callback. A task has a bounded number of them.
func addCallback(ctx context.Context, v *surface.Request, w *runtime.Webhook, d delivery, id agentsvc.TaskID) error {
	r, err := newCallbackReceiver(v, w, d)
	if err != nil || r == nil {
		return err
	}
	r.Task = id
	_, err = v.Tasks.Receivers.Set(ctx, v.OwnVisibility(w.Agent), v.Origin(), *r)
	return toCallbackError(err)
}

// toCallbackError returns the error for a delivery that asks for one callback too many; any other error is returned as
// it is.
func toCallbackError(err error) error {
	if errors.Is(err, receiver.ErrTooMany) {
		return agentsvc.NewError(agentsvc.CodeExhausted, "the result of a delivery is posted at most %d times; give a new delivery a new id", receiver.MaxPerTask)
	}
	return err
}
