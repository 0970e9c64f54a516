package runtime

import (
	"context"
	"log/slog"

	"stoa/agentsvc/task"
	"stoa/billing"
	"stoa/billing/budget"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// metering counts what the app uses and holds it to the app's plan and budgets. Models and embedders are decorated with
// it. Without billing meter and budgetGate are nil, and nothing is counted.
type metering struct {
	tenant          Tenant
	meter           *usage.Meter
	budgetGate      *budget.Gate
	instrumentation Instrumentation
	log             *slog.Logger
}

// newMetering returns the app's metering; service may be nil.
func newMetering(b *build, service *billing.Service, i Instrumentation) metering {
	c := metering{tenant: b.tenant, instrumentation: i, log: b.log}
	if service != nil {
		c.meter, c.budgetGate = service.Usage.NewMeter(b.tenant.ID, b.tenant.Plan), service.Budgets.NewGate(b.tenant.ID, b.tenant.Plan)
	}
	return c
}

// findBudgetChange reports whether the budget that a paused task waits for covers its call again; nil if not. It is
// [task.Options].BudgetAvailability.
func (met metering) findBudgetChange(ctx context.Context, w task.BudgetWait) (*task.BudgetChange, error) {
	if met.budgetGate == nil {
		return &task.BudgetChange{}, nil
	}
	r, err := met.budgetGate.CheckAvailability(ctx, w.ID, w.Needs)
	return (*task.BudgetChange)(r), err
}

// usageMeter makes the usage rows of runs. It implements [task.UsageMeter].
type usageMeter struct{ meter *usage.Meter }

// newUsageMeter returns the app's meter of runs, nil if nothing is counted.
func (met metering) newUsageMeter() task.UsageMeter {
	if met.meter == nil {
		return nil
	}
	return usageMeter{met.meter}
}

// CountUsage implements [task.UsageMeter]: usage rows join the transaction that appends the events.
func (m usageMeter) CountUsage(b *db.Batch, x task.RunFacts) {
	m.meter.CountUsage(b, billingFacts(x))
}

// WriteUsage implements [task.UsageMeter]: usage rows get a transaction of their own.
func (m usageMeter) WriteUsage(ctx context.Context, x task.RunFacts) error {
	return m.meter.WriteUsage(ctx, billingFacts(x))
}

// billingFacts converts x to billing's type: billing does not import task.
func billingFacts(x task.RunFacts) usage.RunFacts {
	return usage.RunFacts{
		Task: x.Run.Task, Turn: x.Run.Turn, Epoch: x.Run.Epoch, Agent: x.Run.Agent, Owner: x.Run.Owner, Events: x.Events, RunTime: x.Worked, TurnEnded: x.Ended,
	}
}
