// Package notify sends notifications of task events to webhooks: signed HTTP requests that are retried.
//
// A receiver ([receiver.Receiver]) is a row that belongs to a task. It has the sealed address and the sequence number of
// the last event that was delivered. The task's log is the queue: nothing is written when an event happens, and every
// event on the log is delivered sooner or later. A run neither knows of receivers nor waits for them.
//
// There are two kinds of receivers: those that callers register for one task, such as A2A push notifications, and
// standing ones ([StandingReceiver]), which the configuration defines for all tasks of an agent.
//
// A [Notifier] belongs to one tenant: it seals and opens addresses, and composes and sends the messages. A [Dispatcher]
// claims receivers that have undelivered events, in any number of processes. A lease keeps a receiver with one process
// at a time. Each receiver gets its events in order and at least once; a repeated message has the same id.
//
// docs/notifications.md describes the messages.
package notify

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/store/vault"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Address is where a receiver's messages are sent, with the credentials that they carry. It is stored sealed.
type Address struct {
	URL string `json:"url"`
	// Token is sent in the header A2A-Notification-Token.
	Token string `json:"token,omitempty"`
	// Scheme is that of the header Authorization, Bearer or Basic; Credentials follow it.
	Scheme      string `json:"scheme,omitempty"`
	Credentials string `json:"credentials,omitempty"`
	// AppOwned is set if the app's configuration names the address or lists its host. Then the app's own network
	// permissions apply, instead of those for addresses that callers choose.
	AppOwned bool `json:"own,omitempty"`
}

// Format is the form of the messages of a receiver, by the protocol through which it was registered.
type Format struct {
	// IncludesTask means that EncodeBody gets the task's status and artifacts as of each event, not the event alone.
	IncludesTask bool
	// ShouldSend reports whether an event is sent. It must be true for the status that ends a task: that delivery ends
	// the receiver.
	ShouldSend func(ev agentsvc.Event) bool
	// EncodeBody returns the message for ev as JSON. t has the fields that never change and, with IncludesTask, the
	// status and artifacts after ev.
	EncodeBody func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error)
}

// Egress is a client with what it may reach.
type Egress struct {
	Client *egress.Client
	// AllowPrivate means that the client reaches private addresses; then http is allowed as well as https.
	AllowPrivate bool
}

// Options are the options of a [Notifier].
type Options struct {
	// CallerEgress is for addresses that callers choose.
	CallerEgress Egress
	// AppEgress is for addresses of the app's own; see [Address].
	AppEgress Egress
	// Secret signs the messages (Standard Webhooks); nil means unsigned.
	Secret []byte
	// StandingReceivers are the receivers of all tasks, by agent.
	StandingReceivers map[string][]*StandingReceiver
	// OnReceiverCreated is called when a receiver is about to be stored, so that the dispatcher looks for it soon; may
	// be nil.
	OnReceiverCreated func()
	// OnAttempt is called after each attempt, with one of [OutcomeDelivered], [OutcomeFailed] and [OutcomeDead]; it may
	// be nil.
	OnAttempt func(outcome string)
}

// The outcomes of an attempt.
const (
	OutcomeDelivered = "delivered"
	// OutcomeFailed will be retried.
	OutcomeFailed = "failed"
	// OutcomeDead will not be retried.
	OutcomeDead = "dead"
)

// Notifier creates the receivers of one tenant's tasks, and sends their messages. It is immutable.
type Notifier struct {
	tenant  string
	keys    *keyring.Keyring
	options Options
}

// NewNotifier returns the notifier of a tenant, whose addresses are sealed by keys.
func NewNotifier(tenant db.ID, keys *keyring.Keyring, o Options) *Notifier {
	return &Notifier{tenant: string(tenant), keys: keys, options: o}
}

// egressFor returns the client for an address.
func (not *Notifier) egressFor(a Address) Egress {
	if a.AppOwned {
		return not.options.AppEgress
	}
	return not.options.CallerEgress
}

// maxURL bounds a URL, in bytes.
const maxURL = 2048

// NewReceiver returns a receiver for a task of owner, with the address sealed. An address that nothing may be sent to
// is an error with [agentsvc.CodeInvalid].
func (not *Notifier) NewReceiver(owner agentsvc.Owner, id, format string, a Address) (receiver.Receiver, error) {
	if err := not.checkAddress(&a); err != nil {
		return receiver.Receiver{}, err
	}
	plain, err := json.Marshal(a)
	if err != nil {
		return receiver.Receiver{}, err
	}
	sealed, err := not.keys.SealValue(not.tenant, sealContext(owner), plain)
	if err != nil {
		return receiver.Receiver{}, fmt.Errorf("seal an address: %w", err)
	}
	if not.options.OnReceiverCreated != nil {
		not.options.OnReceiverCreated()
	}
	return receiver.Receiver{ID: id, Format: format, Value: base64.StdEncoding.EncodeToString(sealed), MasterKey: not.keys.CurrentKeyID()}, nil
}

// OpenAddress returns the address of a receiver of a task of owner.
func (not *Notifier) OpenAddress(owner agentsvc.Owner, r receiver.Receiver) (a Address, err error) {
	sealed, err := base64.StdEncoding.DecodeString(r.Value)
	if err != nil {
		return a, fmt.Errorf("open an address: %w", err)
	}
	plain, err := not.keys.OpenValue(not.tenant, sealContext(owner), sealed)
	if err != nil {
		return a, fmt.Errorf("open an address: %w", err)
	}
	return a, json.Unmarshal(plain, &a)
}

// composeMessage returns the message for an event, nil if the configuration no longer wants one. An address that cannot
// be opened is a [*deliveryError].
func (not *Notifier) composeMessage(ctx context.Context, format Format, r receiver.Receiver, t agentsvc.Task, ev agentsvc.Event) (*outgoingMessage, error) {
	if r.IsStanding() {
		return not.composeNotice(ctx, r, t, ev)
	}
	a, err := not.OpenAddress(t.Owner, r)
	if err != nil {
		// Another process may have the key.
		return nil, &deliveryError{reason: "its address is encrypted under a master key that this process does not have", isPermanent: !errors.Is(err, keyring.ErrKeyMissing)}
	}
	body, err := format.EncodeBody(t, ev)
	return &outgoingMessage{Address: a, contentType: jsonContentType, body: body}, err
}

// reportAttempt calls OnAttempt. deliveryErr is nil if the attempt succeeded.
func (not *Notifier) reportAttempt(deliveryErr *deliveryError) {
	switch {
	case not.options.OnAttempt == nil:
	case deliveryErr == nil:
		not.options.OnAttempt(OutcomeDelivered)
	case deliveryErr.isPermanent, deliveryErr.skipsEvent:
		not.options.OnAttempt(OutcomeDead)
	default:
		not.options.OnAttempt(OutcomeFailed)
	}
}

// sealContext returns the context to which a sealed address is bound: a row that is copied to another owner's task
// cannot be opened.
func sealContext(owner agentsvc.Owner) string {
	return fmt.Sprintf("receiver %q %q", owner.Issuer, owner.Subject)
}

// CheckURL returns an error with [agentsvc.CodeInvalid] if a URL cannot be that of a receiver; inside means that private
// addresses are allowed. The error quotes nothing of the URL, which may contain a secret.
func CheckURL(text string, inside bool) error {
	if len(text) > maxURL {
		return agentsvc.NewInvalidError("url", "is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case text == "":
		return agentsvc.NewInvalidError("url", "is missing: the address that receives the notifications")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return agentsvc.NewInvalidError("url", "must be an https address")
	case u.Scheme == "http" && !inside:
		return agentsvc.NewInvalidError("url", "must be an https address; http is for apps that may call private addresses")
	case u.User != nil:
		return agentsvc.NewInvalidError("url", "contains a user name or password: set authentication instead")
	}
	return nil
}

// checkAddress returns an error with [agentsvc.CodeInvalid] for an invalid address, and normalizes the scheme's
// spelling. The error quotes nothing of the address.
func (not *Notifier) checkAddress(a *Address) error {
	err := CheckURL(a.URL, not.egressFor(*a).AllowPrivate)
	switch {
	case err != nil:
		return err
	case a.Scheme == "" && a.Credentials != "":
		return agentsvc.NewInvalidError("authentication.scheme", "is missing: Bearer or Basic")
	case a.Scheme == "":
	case strings.EqualFold(a.Scheme, "bearer"):
		a.Scheme = "Bearer"
	case strings.EqualFold(a.Scheme, "basic"):
		a.Scheme = "Basic"
	default:
		return agentsvc.NewInvalidError("authentication.scheme", "must be Bearer or Basic")
	}
	for at, value := range map[string]string{"token": a.Token, "authentication.credentials": a.Credentials} {
		if value != "" {
			err = errors.Join(err, vault.CheckCredential(at, value))
		}
	}
	return err
}
