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

// sendTimeout bounds one attempt, its answer included: it is over before the lease.
const sendTimeout = 10 * time.Second

// deliveryError says why a receiver was not told, in words that its owner may read. A final one means that it never will be.
type deliveryError struct {
	reason      string
	isPermanent bool
	skipsEvent  bool // the event is not told, what comes after it may be
	retry       retryPolicy
}

func (r *deliveryError) Error() string { return r.reason }

// retryPolicy is how often one event is told, and how long the pauses are; what is zero is up to the courier.
type retryPolicy struct {
	maxAttempts                int64
	initialBackoff, maxBackoff time.Duration
}

// outgoingMessage is one thing that a receiver is told.
type outgoingMessage struct {
	Address
	header      map[string]string
	contentType string // of the body
	body        []byte
	retry       retryPolicy
}

const jsonContentType = "application/json"

// sendMessage sends a message once. It returns a [*refusal] for whatever is answered but 2xx. A redirect is not followed: what is told
// is for nobody else.
func (d *Notifier) sendMessage(ctx context.Context, id string, m *outgoingMessage) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.body))
	if err != nil {
		return &deliveryError{reason: "the address cannot be called", isPermanent: true}
	}
	a, egressTo := m.Address, d.egressFor(m.Address)
	if req.URL.Scheme != "https" && !egressTo.AllowPrivate {
		return &deliveryError{reason: "only https addresses are told", isPermanent: true} // they may have been private ones when it was set
	}
	req.Header.Set("Content-Type", m.contentType)
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
	egress.SignWebhook(req.Header, d.options.Secret, id, time.Now(), m.body)
	resp, err := egress.WithoutRedirects(egressTo.Client.HTTP()).Do(req)
	if err != nil {
		var never *egress.NotAllowedError
		return &deliveryError{reason: egress.PublicMessage(err), isPermanent: errors.As(err, &never)}
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		reason := fmt.Sprintf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		return &deliveryError{reason: reason, isPermanent: resp.StatusCode == http.StatusGone}
	}
	return nil
}
