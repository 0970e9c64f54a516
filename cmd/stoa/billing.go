package main

import (
	"context"
	"errors"
	"fmt"

	"stoa/billing"
	"stoa/tenancy"
)

// openBilling brings up what counts the apps' usage and bounds it.
func (h *house) openBilling(ctx context.Context) (err error) {
	h.shared.Billing, err = billing.Open(ctx, h.db, h.bus, billing.Options{Log: h.log})
	return err
}

// knownPlan refuses the name of a plan that does not exist.
func knownPlan(b *billing.Service) func(ctx context.Context, name string) error {
	if b == nil {
		return nil
	}
	return func(ctx context.Context, name string) error {
		_, err := b.FindPlan(ctx, name)
		if errors.Is(err, billing.ErrNotFound) {
			return &tenancy.InvalidError{Field: "plan", Reason: fmt.Sprintf("there is no plan %.63q; GET /admin/plans lists them", name)}
		}
		return err
	}
}
