package billing

import (
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
)

// StripeCustomerLabel is the label of an app that names its customer at Stripe. Usage of an app without it is not for Stripe.
const StripeCustomerLabel = "stripe_customer"

// stripeMaxEventAge is how old an event may be that Stripe takes.
const stripeMaxEventAge = 35 * 24 * time.Hour

// stripeConcurrency bounds the calls to Stripe under way.
const stripeConcurrency = 8

// StripeSink sends each row as meter events, one for each meter that the row has something of.
type StripeSink struct {
	client *stripe.Client
	events map[string]string
}

// StripeMeters are what can be sent: the meters of prices, and charge in nano-units.
var StripeMeters = append(slices.Clone(Meters), "charge")

// NewStripeSink returns a sink that speaks by client with a secret key. events says which meters are sent under which name of an
// event. url is where Stripe is, "" for the usual address.
func NewStripeSink(client *http.Client, key, url string, events map[string]string) (*StripeSink, error) {
	if key == "" {
		return nil, invalidField("key", "is missing: a secret key of Stripe")
	}
	if len(events) == 0 {
		return nil, invalidField("events", "are missing: which meter is sent as which event, such as charge=stoa_charge")
	}
	for _, meter := range slices.Sorted(maps.Keys(events)) {
		if !slices.Contains(StripeMeters, meter) || events[meter] == "" {
			return nil, invalidField("events", "%.40q is no meter with the name of an event; there are %s", meter, strings.Join(StripeMeters, ", "))
		}
	}
	cfg := &stripe.BackendConfig{
		HTTPClient: client, EnableTelemetry: stripe.Bool(false), MaxNetworkRetries: stripe.Int64(0), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if url != "" {
		cfg.URL = stripe.String(url)
	}
	return &StripeSink{stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(cfg))), events}, nil
}

// Send implements [Sink]. What Stripe says it will never take is refused: what is too old, and what is for a customer that is
// not there. All else that goes wrong, a mistake in the settings as well, is tried again.
func (s *StripeSink) Send(ctx context.Context, b ExportBatch) (refused int, err error) {
	var lost atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(stripeConcurrency)
	for _, r := range b.Rows {
		if r.Labels[StripeCustomerLabel] == "" {
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

// sendRow sends what a row has of each meter.
func (s *StripeSink) sendRow(ctx context.Context, r ExportRow) (delivered bool, err error) {
	if time.Since(r.At) > stripeMaxEventAge {
		return false, nil
	}
	for _, meter := range slices.Sorted(maps.Keys(s.events)) {
		n := int64(r.Charge)
		if meter != "charge" {
			n = r.meterQuantity(meter)
		}
		if n == 0 {
			continue
		}
		id := r.ID() + "." + meter
		p := &stripe.BillingMeterEventCreateParams{
			EventName: stripe.String(s.events[meter]), Identifier: stripe.String(id), Timestamp: stripe.Int64(r.At.Unix()),
			Payload: map[string]string{"stripe_customer_id": r.Labels[StripeCustomerLabel], "value": strconv.FormatInt(n, 10)},
		}
		p.SetIdempotencyKey(id)
		_, err := s.client.V1BillingMeterEvents.Create(ctx, p)
		var stripeErr *stripe.Error
		switch {
		case err == nil:
		case errors.As(err, &stripeErr) && stripeErr.Code == stripe.ErrorCodeResourceAlreadyExists: // the same event, sent before
		case errors.As(err, &stripeErr) && stripeErr.Code == stripe.ErrorCodeResourceMissing:
			return false, nil
		case errors.As(err, &stripeErr):
			return true, fmt.Errorf("stripe answered %d %s %s", stripeErr.HTTPStatusCode, stripeErr.Type, stripeErr.Code)
		default:
			return true, err
		}
	}
	return true, nil
}

// meterQuantity returns how much a row has of a meter, in whole ones.
func (u Usage) meterQuantity(meter string) (n int64) {
	for _, c := range meterClasses {
		if c.meter == meter {
			return ceilDiv(c.quantity(u.Quantities), c.unit)
		}
	}
	return 0
}
