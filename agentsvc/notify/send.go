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

// sendTimeout bounds one attempt, including the response. It is shorter than leaseTime, so that no other process sends
// meanwhile.
const sendTimeout = 10 * time.Second

// deliveryError is a failed attempt. Its reason may be shown to the owner of the receiver.
type deliveryError struct {
	reason      string
	isPermanent bool
	// skipsEvent means that this event is given up and the next one follows. isPermanent means that the receiver is
	// given up.
	skipsEvent bool
	// retry is the policy of the message; zero fields mean that of the dispatcher.
	retry retryPolicy
}

func (e *deliveryError) Error() string { return e.reason }

// retryPolicy is how often and with which pauses one event is sent. Zero fields mean the dispatcher's options.
type retryPolicy struct {
	maxAttempts                int64
	initialBackoff, maxBackoff time.Duration
}

// outgoingMessage is one message to a receiver.
type outgoingMessage struct {
	Address
	header map[string]string
	// contentType is that of body.
	contentType string
	body        []byte
	retry       retryPolicy
}

const jsonContentType = "application/json"

// sendMessage sends a message once. A response other than 2xx is a [*deliveryError]; 410 Gone is a permanent one.
// Redirects are not followed: the message is for this address only.
func (not *Notifier) sendMessage(ctx context.Context, id string, m *outgoingMessage) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.body))
	if err != nil {
		return &deliveryError{reason: "the address cannot be called", isPermanent: true}
	}
	a, egressTo := m.Address, not.egressFor(m.Address)
	if req.URL.Scheme != "https" && !egressTo.AllowPrivate {
		// The permission for private addresses may have been withdrawn since the receiver was created.
		return &deliveryError{reason: "only https addresses are notified", isPermanent: true}
	}
	req.Header.Set("Content-Type", m.contentType)
	for name, value := range m.header {
		req.Header.Set(name, value)
	}
	if a.Token != "" {
		// X-A2A-Notification-Token is the name in the specification, A2A-Notification-Token the one that the protocol's
		// own libraries use.
		req.Header.Set("X-A2A-Notification-Token", a.Token)
		req.Header.Set("A2A-Notification-Token", a.Token)
	}
	if a.Credentials != "" {
		req.Header.Set("Authorization", a.Scheme+" "+a.Credentials)
	}
	// Without a secret the message is sent unsigned.
	egress.SignWebhook(req.Header, not.options.Secret, id, time.Now(), m.body)
	resp, err := egress.WithoutRedirects(egressTo.Client.HTTP()).Do(req)
	if err != nil {
		var never *egress.NotAllowedError
		return &deliveryError{reason: egress.PublicMessage(err), isPermanent: errors.As(err, &never)}
	}
	defer func() { _ = resp.Body.Close() }()
	// A body that was read to its end lets the connection be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		reason := fmt.Sprintf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		return &deliveryError{reason: reason, isPermanent: resp.StatusCode == http.StatusGone}
	}
	return nil
}
