package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"stoa/agentsvc/egress"
)

// sendTime bounds one attempt, its answer included: it is over before the lease.
const sendTime = 10 * time.Second

// refusal says why a receiver was not told, in words that its owner may read. A final one means that it never will be.
type refusal struct {
	reason string
	final  bool
	over   bool // the event is not told, what comes after it may be
	pace   pace
}

func (r *refusal) Error() string { return r.reason }

// pace is how often one event is told, and how long the pauses are; what is zero is up to the courier.
type pace struct {
	tries          int64
	first, longest time.Duration
}

// message is one thing that a receiver is told.
type message struct {
	Address
	header map[string]string
	kind   string // of the body
	body   []byte
	pace   pace
}

const jsonType = "application/json"

// send sends a message once. It returns a [*refusal] for whatever is answered but 2xx. A redirect is not followed: what is told
// is for nobody else.
func (d *Desk) send(ctx context.Context, id string, m *message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.body))
	if err != nil {
		return &refusal{reason: "the address cannot be called", final: true}
	}
	a, reach := m.Address, d.reach(m.Address)
	if req.URL.Scheme != "https" && !reach.Inside {
		return &refusal{reason: "only https addresses are told", final: true} // they may have been private ones when it was set
	}
	req.Header.Set("Content-Type", m.kind)
	for name, value := range m.header {
		req.Header.Set(name, value)
	}
	if a.Token != "" {
		// The specification's name, and the one that the protocol's own libraries send and look for.
		req.Header.Set("X-A2A-Notification-Token", a.Token)
		req.Header.Set("A2A-Notification-Token", a.Token)
	}
	if a.Credentials != "" {
		req.Header.Set("Authorization", a.Scheme+" "+a.Credentials)
	}
	egress.Sign(req.Header, d.o.Secret, id, time.Now(), m.body)
	resp, err := egress.Direct(reach.Client.HTTP()).Do(req)
	if err != nil {
		var never *egress.NotAllowedError
		return &refusal{reason: egress.Reason(err), final: errors.As(err, &never)}
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		reason := fmt.Sprintf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		return &refusal{reason: reason, final: resp.StatusCode == http.StatusGone}
	}
	return nil
}
