package billing

import (
	"context"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// GrantCredit is how tests make credits that are over already.
func GrantCredit(s *Service, ctx context.Context, app tenancy.App, c Credit) error { //nolint:revive // it stands for a method
	_, err := s.grantCredit(ctx, app, c)
	return err
}

// RecountNewBudgets is how tests need not wait until new budgets are worked out anew.
var RecountNewBudgets = (*Service).recountNewBudgets

// RunFactsOf is what a call leaves to be counted.
var RunFactsOf = UsageRequest.runFacts

// InsertUsage is how tests write rows of their own making, and UsageColumns and ScanUsage how they read them.
var InsertUsage = insertUsage

const UsageColumns = usageColumns

func ScanUsage(row db.Row) (Usage, error) {
	var r ExportRow
	err := r.scanRow(row)
	return r.Usage, err
}

// ReadChanges is how tests need not wait until a process looks for changes.
var ReadChanges = (*Service).readChanges
