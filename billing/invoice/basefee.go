package invoice

import (
	"context"
	"fmt"
	"time"

	"stoa/billing/calendar"
	"stoa/tenancy/db"
)

// planChange says that an app was put on a plan, "" for on none.
type planChange struct {
	since time.Time
	plan  string
}

// readPlanChanges reads on which plans the app was, the oldest first.
func (c usageCounter) readPlanChanges(ctx context.Context) ([]planChange, error) {
	var changes []planChange
	err := c.query(ctx, func(r db.Row) error {
		var x planChange
		var since int64
		err := r.Scan(&since, &x.plan)
		x.since = time.UnixMicro(since).UTC()
		changes = append(changes, x)
		return err
	}, `SELECT since, plan FROM app_plan WHERE tenant = $1 ORDER BY since`, string(c.app.ID))
	if err != nil {
		return nil, fmt.Errorf("read the plans of app %s: %w", c.app.Name, err)
	}
	return changes, nil
}

// baseFee returns the line for the base fee of the month that ends at end, and whether there is one: the app was on a
// plan with a base fee at the end of the month, or is now if the month is running.
func (c usageCounter) baseFee(changes []planChange, begin, end time.Time) (Line, bool) {
	plan := ""
	for _, x := range changes {
		if x.since.Before(end) {
			plan = x.plan
		}
	}
	p, ok := c.terms.Plan(plan)
	if !ok || p.BaseFee == 0 || !p.BaseFeeSince.Before(end) || begin.After(c.now) {
		return Line{}, false
	}
	return Line{Kind: BaseFeeLine, Plan: p.Name, Currency: p.Currency, Charge: p.BaseFee}, true
}

// nextBaseFee returns a time in the first month that is not invoiced and has a base fee, and whether there is one.
func (c usageCounter) nextBaseFee(changes []planChange) (at time.Time, found bool) {
	if len(changes) == 0 {
		return at, false
	}
	at = time.UnixMicro(max(c.state.Until, changes[0].since.UnixMicro())).UTC()
	for !at.After(c.now) {
		begin, end := calendar.Month.Bounds(at, c.tariff.zone)
		if _, ok := c.baseFee(changes, begin, end); ok && monthName(begin, c.tariff.zone) > c.state.Month {
			return at, true
		}
		at = end
	}
	return at, false
}
