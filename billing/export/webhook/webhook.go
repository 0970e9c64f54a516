// Package webhook exports usage and the threshold events of budgets to a URL.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/billing/budget"
	"stoa/billing/export"
)

// Sink posts each batch and each threshold notice to a URL, signed by the Standard Webhooks specification. A
// repeated message has the same webhook-id, and each row the same id. A response other than 2xx is an error, so the
// message is sent again.
type Sink struct {
	URL    string
	Secret []byte
	Client *http.Client
}

// ParseSecret decodes a signing secret: whsec_ and 24 to 64 bytes in base64. An invalid one is an
// [agentsvc.CodeInvalid].
func ParseSecret(text string) ([]byte, error) {
	secret, err := egress.ParseSecret(text)
	if err != nil {
		return nil, agentsvc.NewInvalidError("secret", "%v", err)
	}
	return secret, nil
}

// Send implements [export.Sink].
func (s Sink) Send(ctx context.Context, b export.Batch) (refused int, err error) {
	rows := make([]map[string]any, len(b.Rows))
	for i, r := range b.Rows {
		rows[i] = r.EncodeFields()
	}
	return 0, s.postMessage(ctx, fmt.Sprintf("%s_%d", b.Export, b.Number), "usage.recorded", map[string]any{"export": b.Export, "batch": b.Number, "rows": rows})
}

// NotifyThreshold implements [export.ThresholdNotifier].
func (s Sink) NotifyThreshold(ctx context.Context, n budget.ThresholdNotice) error {
	data := map[string]any{
		"app": n.AppName, "app_id": string(n.App), "budget": n.Budget, "scope": n.Scope.String(), "unit": string(n.Unit), "currency": n.Currency,
		"threshold": n.Threshold, "committed": n.Committed, "amount": n.Amount,
		"since": n.Since.Format(time.RFC3339Nano), "at": n.At.Format(time.RFC3339Nano),
	}
	if n.Unit == budget.InMoney {
		data["committed_decimal"], data["amount_decimal"] = n.Unit.FormatDecimal(n.Committed, n.Currency), n.Unit.FormatDecimal(n.Amount, n.Currency)
	}
	return s.postMessage(ctx, n.ID(), "budget.threshold_passed", data)
}

// postMessage sends one signed message. id is the webhook-id, kind the message's type.
func (s Sink) postMessage(ctx context.Context, id, kind string, data map[string]any) error {
	now := time.Now()
	body, err := json.Marshal(map[string]any{"type": kind, "timestamp": now.UTC().Format(time.RFC3339), "data": data})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	egress.SignWebhook(req.Header, s.Secret, id, now, body)
	resp, err := s.Client.Do(req)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			// Without the URL, which may contain a secret: the error is stored and logged.
			err = of.Err
		}
		return fmt.Errorf("post to the webhook: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	// A body that was read to its end lets the connection be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return nil
}
