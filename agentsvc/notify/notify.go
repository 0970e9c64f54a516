// Package notify tells addresses outside of what happens to tasks: events become signed, retried HTTP requests.
//
// Who is told stands beside the task, as a [store.Receiver], with the last event that it knows of: the log is the queue, so
// that nothing is written where nobody is to be told, and whatever is on the log is told sooner or later. A [Desk] makes
// receivers of the addresses of one tenant and knows the way to them. A [Courier] looks who has news to hear, in any number of
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
	// Own says that the app's configuration names the address, or lists its host: then the app's own reach holds.
	Own bool `json:"own,omitempty"`
}

// Form is what receivers are told in.
type Form struct {
	// Whole says that the task is told as it stands after each event, artifacts included, and not the event alone.
	Whole bool
	// Tells reports whether an event is told. The status that ends a task must be.
	Tells func(ev agentsvc.Event) bool
	// Body returns what is told of ev, in JSON. Of t it gets what never changes, and with Whole its status and artifacts after ev.
	Body func(t agentsvc.Task, ev agentsvc.Event) ([]byte, error)
}

// Reach is how far away somebody may be told.
type Reach struct {
	Client *egress.Client
	Inside bool // the client reaches private addresses, and http will do
}

// Options are what a [Desk] sends with.
type Options struct {
	Callers Reach  // to addresses that callers choose
	Own     Reach  // to those that are the app's own, see [Address]
	Secret  []byte // signs what is sent; nil = nothing is signed
	// Standing are the addresses that are told of every task, by agent.
	Standing map[string][]*Standing
	Made     func() // called when a receiver is about to be set; may be nil
	// Tried is told of each attempt to send, one of [Delivered], [Failed] and [Dead]; it may be nil.
	Tried func(outcome string)
}

// What becomes of an attempt to tell a receiver.
const (
	Delivered = "delivered"
	Failed    = "failed" // and will be tried again
	Dead      = "dead"   // and will not
)

// Desk makes receivers for one tenant's tasks, and sends what they are told.
type Desk struct {
	tenant string
	keys   *tenancy.Keyring
	o      Options
}

// NewDesk returns the desk of a tenant, whose addresses are sealed under keys.
func NewDesk(tenant db.ID, keys *tenancy.Keyring, o Options) *Desk {
	return &Desk{tenant: string(tenant), keys: keys, o: o}
}

// reach is how far away an address may be.
func (d *Desk) reach(a Address) Reach {
	if a.Own {
		return d.o.Own
	}
	return d.o.Callers
}

// maxURL bounds an address, in bytes.
const maxURL = 2048

// Receiver returns one of a task of owner's. It returns an [agentsvc.InvalidError] for an address that nothing may be sent to.
func (d *Desk) Receiver(owner agentsvc.Owner, id, form string, a Address) (store.Receiver, error) {
	if err := d.check(&a); err != nil {
		return store.Receiver{}, err
	}
	plain, err := json.Marshal(a)
	if err != nil {
		return store.Receiver{}, err
	}
	sealed, err := d.keys.Seal(d.tenant, field(owner), plain)
	if err != nil {
		return store.Receiver{}, fmt.Errorf("seal an address: %w", err)
	}
	if d.o.Made != nil {
		d.o.Made()
	}
	return store.Receiver{ID: id, Form: form, Value: base64.StdEncoding.EncodeToString(sealed), MasterKey: d.keys.Current()}, nil
}

// Address returns where a receiver of a task of owner's is told.
func (d *Desk) Address(owner agentsvc.Owner, r store.Receiver) (a Address, err error) {
	sealed, err := base64.StdEncoding.DecodeString(r.Value)
	if err != nil {
		return a, fmt.Errorf("open an address: %w", err)
	}
	plain, err := d.keys.Open(d.tenant, field(owner), sealed)
	if err != nil {
		return a, fmt.Errorf("open an address: %w", err)
	}
	return a, json.Unmarshal(plain, &a)
}

// compose makes what a receiver is told of an event; nil = nothing, as the configuration is. What cannot be told is a [*refusal].
func (d *Desk) compose(form Form, r store.Receiver, t agentsvc.Task, ev agentsvc.Event) (*message, error) {
	if r.Standing() {
		return d.notice(r, t, ev)
	}
	a, err := d.Address(t.Owner, r)
	if err != nil {
		return nil, &refusal{reason: "its address is sealed under a key that is gone", final: true}
	}
	body, err := form.Body(t, ev)
	return &message{Address: a, kind: jsonType, body: body}, err
}

// tried says what became of an attempt; no is nil where it went well.
func (d *Desk) tried(no *refusal) {
	switch {
	case d.o.Tried == nil:
	case no == nil:
		d.o.Tried(Delivered)
	case no.final, no.over:
		d.o.Tried(Dead)
	default:
		d.o.Tried(Failed)
	}
}

// field is where an address belongs: it opens for its owner alone.
func field(owner agentsvc.Owner) string {
	return fmt.Sprintf("receiver %q %q", owner.Issuer, owner.Subject)
}

// CheckURL says what is wrong with where somebody is to be told, inside or not. It quotes none of it.
func CheckURL(text string, inside bool) error {
	if len(text) > maxURL {
		return agentsvc.Invalid("url", "is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case text == "":
		return agentsvc.Invalid("url", "is missing: the address to be told at")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return agentsvc.Invalid("url", "must be an https address")
	case u.Scheme == "http" && !inside:
		return agentsvc.Invalid("url", "must be an https address; http is for apps that may call private addresses")
	case u.User != nil:
		return agentsvc.Invalid("url", "holds a name or password: those belong into authentication")
	}
	return nil
}

// check says what is wrong with an address, whose scheme it puts right. It quotes none of it.
func (d *Desk) check(a *Address) error {
	err := CheckURL(a.URL, d.reach(*a).Inside)
	switch {
	case err != nil:
		return err
	case a.Scheme == "" && a.Credentials != "":
		return agentsvc.Invalid("authentication.scheme", "is missing: Bearer or Basic")
	case a.Scheme == "":
	case strings.EqualFold(a.Scheme, "bearer"):
		a.Scheme = "Bearer"
	case strings.EqualFold(a.Scheme, "basic"):
		a.Scheme = "Basic"
	default:
		return agentsvc.Invalid("authentication.scheme", "must be Bearer or Basic")
	}
	for at, value := range map[string]string{"token": a.Token, "authentication.credentials": a.Credentials} {
		if value != "" {
			err = errors.Join(err, store.CheckCredential(at, value))
		}
	}
	return err
}
