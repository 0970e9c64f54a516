// Package stripe exports usage as meter events of Stripe.
package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v85"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/billing/amount"
	"stoa/billing/export"
)

// CustomerLabel is the label of an app that has its Stripe customer id. Usage of an app without it is skipped.
const CustomerLabel = "stripe_customer"

// stripeMaxEventAge is the age up to which Stripe accepts a meter event.
const stripeMaxEventAge = 35 * 24 * time.Hour

// stripeConcurrency bounds the concurrent requests to Stripe.
const stripeConcurrency = 8

// Sink sends each row as meter events of Stripe, one for each configured meter that is not 0 in the row.
type Sink struct {
	// backend and key are what the library's client has of the API. The client itself refers to all services of Stripe, which
	// would be 7 MB of the program.
	backend stripe.Backend
	key     string
	// events has the Stripe event name by meter.
	events map[string]string
}

// Meters are the meters that can be sent: [amount.Meters], and charge in nano-units.
var Meters = append(slices.Clone(amount.Meters), "charge")

// New returns a sink that uses client and the secret key. events has the name of the Stripe event by meter.
// url is the API's address, "" for the usual one. An invalid argument is an error with [agentsvc.CodeInvalid].
func New(client *http.Client, key, url string, events map[string]string) (*Sink, error) {
	if key == "" {
		return nil, agentsvc.NewInvalidError("key", "is missing: a secret key of Stripe")
	}
	if len(events) == 0 {
		return nil, agentsvc.NewInvalidError("events", "are missing: which meter is sent as which event, such as charge=stoa_charge")
	}
	for _, meter := range slices.Sorted(maps.Keys(events)) {
		if !slices.Contains(Meters, meter) || events[meter] == "" {
			return nil, agentsvc.NewInvalidError("events", "%.40q is no meter with the name of an event; there are %s", meter, strings.Join(Meters, ", "))
		}
	}
	// No retries in the library: the exporter sends the whole batch again, after a pause.
	cfg := &stripe.BackendConfig{
		HTTPClient: withoutLibrary(client), EnableTelemetry: stripe.Bool(false), MaxNetworkRetries: stripe.Int64(0), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if url != "" {
		cfg.URL = stripe.String(url)
	}
	return &Sink{stripe.GetBackendWithConfig(stripe.APIBackend, cfg), key, events}, nil
}

// withoutLibrary returns client for a library that describes itself and this machine in headers: its requests have the
// User-Agent of all outgoing requests instead.
func withoutLibrary(client *http.Client) *http.Client {
	c := *client
	c.Transport = transport{cmp.Or(client.Transport, http.DefaultTransport)}
	return &c
}

// transport is the transport of withoutLibrary.
type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Del("X-Stripe-Client-User-Agent")
	req.Header.Set("User-Agent", egress.UserAgent)
	return t.next.RoundTrip(req)
}

// Send implements [export.Sink]. A row is refused if it is older than stripeMaxEventAge or its customer does not exist
// at Stripe. Every other failure, also one caused by a wrong setting, is an error, so that the batch is sent again.
func (s *Sink) Send(ctx context.Context, b export.Batch) (refused int, err error) {
	var lost atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(stripeConcurrency)
	for _, r := range b.Rows {
		if r.Labels[CustomerLabel] == "" {
			continue
		}
		g.Go(func() error {
			delivered, err := s.sendRow(ctx, r)
			if !delivered {
				lost.Add(1)
			}
			return err
		})
	}
	err = g.Wait()
	return int(lost.Load()), err
}

// sendRow sends one event for each meter of a row. delivered is false if Stripe will never accept the row. The event's
// identifier is derived from the row's id: Stripe rejects a repeated one, which is how a repeated batch counts once.
func (s *Sink) sendRow(ctx context.Context, r export.Row) (delivered bool, err error) {
	if time.Since(r.At) > stripeMaxEventAge {
		return false, nil
	}
	for _, meter := range slices.Sorted(maps.Keys(s.events)) {
		n := int64(r.Charge)
		if meter != "charge" {
			n = r.MeterQuantity(meter)
		}
		if n == 0 {
			continue
		}
		id := r.ID() + "." + meter
		p := &stripe.BillingMeterEventCreateParams{
			EventName: stripe.String(s.events[meter]), Identifier: stripe.String(id), Timestamp: stripe.Int64(r.At.Unix()),
			Payload: map[string]string{"stripe_customer_id": r.Labels[CustomerLabel], "value": strconv.FormatInt(n, 10)},
		}
		p.Context = ctx
		p.SetIdempotencyKey(id)
		err := s.backend.Call(http.MethodPost, "/v1/billing/meter_events", s.key, p, &stripe.BillingMeterEvent{})
		var stripeErr *stripe.Error
		switch {
		case err == nil:
		// The event was accepted in an earlier attempt.
		case errors.As(err, &stripeErr) && stripeErr.Code == stripe.ErrorCodeResourceAlreadyExists:
		case errors.As(err, &stripeErr) && stripeErr.Code == stripe.ErrorCodeResourceMissing:
			return false, nil
		case errors.As(err, &stripeErr):
			// The error has no message of Stripe's: it could contain values of the request.
			return true, fmt.Errorf("stripe answered %d %s %s", stripeErr.HTTPStatusCode, stripeErr.Type, stripeErr.Code)
		default:
			return true, err
		}
	}
	return true, nil
}
