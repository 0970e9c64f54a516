package billing

import (
	"context"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// GrantCredit exports grantCredit: tests create credits that have expired, which AddCredit refuses.
func GrantCredit(s *InvoiceService, ctx context.Context, app tenancy.App, c Credit) error { //nolint:revive // it stands for a method
	_, err := s.grantCredit(ctx, app, c)
	return err
}

// RecountNewBudgets exports recountNewBudgets, so that tests need not wait for its interval.
var RecountNewBudgets = (*BudgetService).recountNewBudgets

// RunFactsOf exports UsageRequest.runFacts.
var RunFactsOf = UsageRequest.runFacts

func ScanUsage(row db.Row) (u UsageRow, err error) {
	err = u.Scan(row)
	return u, err
}

// ReadChanges calls [Feed.ReadChanges], so that tests need not wait for its interval.
func ReadChanges(s *Service, ctx context.Context) error { return s.feed.ReadChanges(ctx) } //nolint:revive // it stands for a method
