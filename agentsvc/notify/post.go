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
}

func (r *refusal) Error() string { return r.reason }

// send sends a message once. It returns a [*refusal] for whatever is answered but 2xx. A redirect is not followed: what is told
// is for nobody else.
func (d *Desk) send(ctx context.Context, a Address, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL, bytes.NewReader(body))
	if err != nil {
		return &refusal{"the address cannot be called", true}
	}
	reach := d.reach(a)
	if req.URL.Scheme != "https" && !reach.Inside {
		return &refusal{"only https addresses are told", true} // they may have been private ones when it was set
	}
	req.Header.Set("Content-Type", "application/json")
	if a.Token != "" {
		// The specification's name, and the one that the protocol's own libraries send and look for.
		req.Header.Set("X-A2A-Notification-Token", a.Token)
		req.Header.Set("A2A-Notification-Token", a.Token)
	}
	if a.Credentials != "" {
		req.Header.Set("Authorization", a.Scheme+" "+a.Credentials)
	}
	egress.Sign(req.Header, d.o.Secret, id, time.Now(), body)
	resp, err := egress.Direct(reach.Client.HTTP()).Do(req)
	if err != nil {
		var never *egress.NotAllowedError
		return &refusal{egress.Reason(err), errors.As(err, &never)}
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		reason := fmt.Sprintf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		return &refusal{reason, resp.StatusCode == http.StatusGone}
	}
	return nil
}
