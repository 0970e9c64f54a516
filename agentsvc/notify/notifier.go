// Package notify tells addresses outside of what happens to tasks: events become signed, retried HTTP requests.
//
// Who is told stands beside the task, as a [store.NewReceiver], with the last event that it knows of: the log is the queue, so
// that nothing is written where nobody is to be told, and whatever is on the log is told sooner or later. A [Notifier] makes
// receivers of the addresses of one tenant and knows the way to them. A [Dispatcher] looks who has news to hear, in any number of
// processes; who is told by one under its lease is told by no other. Each hears of its task's events one after the other, at
// least once, the same again under the same id. A run knows of none of this and waits for nobody.
package notify

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/store"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Address is where a receiver is told, and what it is shown there so that it knows who tells.
type Address struct {
	URL         string `json:"url"`
	Token       string `json:"token,omitempty"`
	Scheme      string `json:"scheme,omitempty"` // of the header Authorization: Bearer or Basic
	Credentials string `json:"credentials,omitempty"`
	// AppOwned says that the app's configuration names the address, or lists its host: then the app's own reach holds.
	AppOwned bool `json:"own,omitempty"`
}

// Format is what receivers are told in.
type Format struct {
	// IncludesTask says that the task is told as it stands after each event, artifacts included, and not the event alone.
	IncludesTask bool
	// ShouldSend reports whether an event is told. The status that ends a task must be.
	ShouldSend func(ev agentsvc.Event) bool
	// EncodeBody returns what is told of ev, in JSON. Of t it gets what never changes, and with Whole its status and artifacts after ev.
	EncodeBody func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error)
}

// Egress is how far away somebody may be told.
type Egress struct {
	Client       *egress.Client
	AllowPrivate bool // the client reaches private addresses, and http will do
}

// Options are what a [Notifier] sends with.
type Options struct {
	CallerEgress Egress // to addresses that callers choose
	AppEgress    Egress // to those that are the app's own, see [Address]
	Secret       []byte // signs what is sent; nil = nothing is signed
	// StandingReceivers are the addresses that are told of every task, by agent.
	StandingReceivers map[string][]*StandingReceiver
	OnReceiverCreated func() // called when a receiver is about to be set; may be nil
	// OnAttempt is told of each attempt to send, one of [OutcomeDelivered], [OutcomeFailed] and [OutcomeDead]; it may be nil.
	OnAttempt func(outcome string)
}

// What becomes of an attempt to tell a receiver.
const (
	OutcomeDelivered = "delivered"
	OutcomeFailed    = "failed" // and will be tried again
	OutcomeDead      = "dead"   // and will not
)

// Notifier makes receivers for one tenant's tasks, and sends what they are told.
type Notifier struct {
	tenant  string
	keys    *tenancy.Keyring
	options Options
}

// NewNotifier returns the desk of a tenant, whose addresses are sealed under keys.
func NewNotifier(tenant db.ID, keys *tenancy.Keyring, o Options) *Notifier {
	return &Notifier{tenant: string(tenant), keys: keys, options: o}
}

// egressFor is how far away an address may be.
func (d *Notifier) egressFor(a Address) Egress {
	if a.AppOwned {
		return d.options.AppEgress
	}
	return d.options.CallerEgress
}

// maxURL bounds an address, in bytes.
const maxURL = 2048

// NewReceiver returns one of a task of owner's. It returns an [agentsvc.InvalidError] for an address that nothing may be sent to.
func (d *Notifier) NewReceiver(owner agentsvc.Owner, id, format string, a Address) (store.Receiver, error) {
	if err := d.checkAddress(&a); err != nil {
		return store.Receiver{}, err
	}
	plain, err := json.Marshal(a)
	if err != nil {
		return store.Receiver{}, err
	}
	sealed, err := d.keys.SealValue(d.tenant, sealContext(owner), plain)
	if err != nil {
		return store.Receiver{}, fmt.Errorf("seal an address: %w", err)
	}
	if d.options.OnReceiverCreated != nil {
		d.options.OnReceiverCreated()
	}
	return store.Receiver{ID: id, Format: format, Value: base64.StdEncoding.EncodeToString(sealed), MasterKey: d.keys.CurrentKeyID()}, nil
}

// OpenAddress returns where a receiver of a task of owner's is told.
func (d *Notifier) OpenAddress(owner agentsvc.Owner, r store.Receiver) (a Address, err error) {
	sealed, err := base64.StdEncoding.DecodeString(r.Value)
	if err != nil {
		return a, fmt.Errorf("open an address: %w", err)
	}
	plain, err := d.keys.OpenValue(d.tenant, sealContext(owner), sealed)
	if err != nil {
		return a, fmt.Errorf("open an address: %w", err)
	}
	return a, json.Unmarshal(plain, &a)
}

// composeMessage makes what a receiver is told of an event; nil = nothing, as the configuration is. What cannot be told is a [*refusal].
func (d *Notifier) composeMessage(format Format, r store.Receiver, t agentsvc.Task, ev agentsvc.Event) (*outgoingMessage, error) {
	if r.IsStanding() {
		return d.composeNotice(r, t, ev)
	}
	a, err := d.OpenAddress(t.Owner, r)
	if err != nil {
		return nil, &deliveryError{reason: "its address is sealed under a key that is gone", isPermanent: true}
	}
	body, err := format.EncodeBody(t, ev)
	return &outgoingMessage{Address: a, contentType: jsonContentType, body: body}, err
}

// reportAttempt says what became of an attempt; no is nil where it went well.
func (d *Notifier) reportAttempt(deliveryErr *deliveryError) {
	switch {
	case d.options.OnAttempt == nil:
	case deliveryErr == nil:
		d.options.OnAttempt(OutcomeDelivered)
	case deliveryErr.isPermanent, deliveryErr.skipsEvent:
		d.options.OnAttempt(OutcomeDead)
	default:
		d.options.OnAttempt(OutcomeFailed)
	}
}

// sealContext is where an address belongs: it opens for its owner alone.
func sealContext(owner agentsvc.Owner) string {
	return fmt.Sprintf("receiver %q %q", owner.Issuer, owner.Subject)
}

// CheckURL says what is wrong with where somebody is to be told, inside or not. It quotes none of it.
func CheckURL(text string, inside bool) error {
	if len(text) > maxURL {
		return agentsvc.NewInvalidError("url", "is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case text == "":
		return agentsvc.NewInvalidError("url", "is missing: the address to be told at")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return agentsvc.NewInvalidError("url", "must be an https address")
	case u.Scheme == "http" && !inside:
		return agentsvc.NewInvalidError("url", "must be an https address; http is for apps that may call private addresses")
	case u.User != nil:
		return agentsvc.NewInvalidError("url", "holds a name or password: those belong into authentication")
	}
	return nil
}

// checkAddress says what is wrong with an address, whose scheme it puts right. It quotes none of it.
func (d *Notifier) checkAddress(a *Address) error {
	err := CheckURL(a.URL, d.egressFor(*a).AllowPrivate)
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
			err = errors.Join(err, store.CheckCredential(at, value))
		}
	}
	return err
}
