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

// receiveDelivery reads a delivery to a webhook and verifies its signature. It returns the delivery's id, "" if it has
// none, and its body, and makes the trigger's owner the principal of v. It returns [trigger.ErrUnsigned] for a delivery
// that is not signed or wrongly signed. A webhook without a signature is checked like any other anonymous call
// ([surface.Access.CheckPage]).
//
// Anybody can send deliveries, so until the signature is verified the body takes its memory from a separate quota and
// its bytes count against a separate rate: unsigned deliveries cannot use up the app's own. Headers that no body could
// match are refused before the body is read; the signature is computed while it is read.
func receiveDelivery(r *http.Request, v *surface.Request, w *runtime.Webhook) (id string, body []byte, err error) {
	if !w.Signature.IsRequired() {
		if err := v.CheckPage(); err != nil {
			return "", nil, err
		}
	}
	proof, err := w.Signature.BeginVerification(r.Header, time.Now())
	if err != nil {
		return "", nil, err
	}
	body, release, err := surface.BodyOf(r).ReadUnverified(r, proof)
	if err != nil {
		return "", nil, err
	}
	defer release()
	if id, err = proof.VerifyBody(); err != nil {
		return "", nil, err
	}
	values, err := countDeliveryValues(r.Header.Get("Content-Type"), body)
	if err != nil {
		return "", nil, err
	}
	if err := surface.BodyOf(r).Reserve(r.Context(), len(body), values); err != nil {
		return "", nil, err
	}
	// The delivery is accepted. Its tasks belong to the trigger, not to a user.
	owner := trigger.TaskOwner(w.Agent)
	v.Principal.Issuer, v.Principal.Subject, v.Principal.Anonymous = owner.Issuer, owner.Subject, false
	if c, ok := v.Runtime.Card(w.Agent); ok {
		v.RecordAgent(c)
	}
	return id, body, nil
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

// submitOnce submits the message that fill makes of a delivery, and waits for the webhook's ResultTimeout. key identifies
// the delivery: a repeated one returns the task of the first one and repeated = true, and fill is not called for it. A
// new one counts against limits and budgets as any call; the errors are those of [surface.Request.AdmitCall], fill
// and [surface.Request.SubmitAndWait].
func submitOnce(ctx context.Context, v *surface.Request, w *runtime.Webhook, key string, fill func(*task.Submission) error) (t agentsvc.Task, repeated bool, err error) {
	t, err = loadDeliveredTask(ctx, v, w, key)
	if decided, repeated, err := lookupResult(err); decided {
		return t, repeated, err
	}
	sub := task.Submission{Agent: w.Agent, Owner: v.Principal.Owner(), Key: key, Background: w.ResultTimeout == 0}
	if err = fill(&sub); err != nil {
		return t, false, err
	}
	if err := v.AdmitCall(ctx, &sub); err != nil {
		return t, false, err
	}
	t, err = v.SubmitAndWait(ctx, sub, w.ResultTimeout)
	if errors.Is(err, task.ErrKeyReused) { // a concurrent repetition was faster, with another body
		t, err = loadDeliveredTask(ctx, v, w, key)
		return t, err == nil, err
	}
	return t, false, err
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
func newCallbackReceiver(v *surface.Request, w *runtime.Webhook, format, contentType string, body []byte) (*receiver.Receiver, error) {
	if w.Callback == nil {
		return nil, nil
	}
	address, err := w.Callback.FindAddress(contentType, body)
	if err != nil {
		return nil, err
	}
	notifier := v.Runtime.Notifier()
	if notifier == nil {
		return nil, errors.New("callbacks are not available in this process")
	}
	r, err := notifier.NewReceiver(v.Principal.Owner(), agentsvc.NewID(), format, notify.Address{URL: address, AppOwned: true})
	if wrong := new(agentsvc.Error); errors.As(err, &wrong) {
		wrong.Field = w.Callback.FieldPath()
	}
	return &r, err
}

// loadDeliveredTask returns the task of a delivery with that key, as it is, or with ResultTimeout as it is once it has
// settled. It returns [agentsvc.ErrNotFound] if there is none.
func loadDeliveredTask(ctx context.Context, v *surface.Request, w *runtime.Webhook, key string) (agentsvc.Task, error) {
	deadlineCtx, cancel := v.WithDeadline(ctx)
	defer cancel()
	id, err := v.Tasks.Reader.FindByKey(deadlineCtx, v.Principal.Owner(), w.Agent, key)
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
