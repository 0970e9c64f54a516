package billing

import (
	"context"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Grant is how tests make credits that are over already.
func Grant(s *Service, ctx context.Context, app tenancy.App, c Credit) error { //nolint:revive // it stands for a method
	_, err := s.grant(ctx, app, c)
	return err
}

// SettleDown is how tests need not wait until new budgets are worked out anew.
var SettleDown = (*Service).settleDown

// FactsOf is what a call leaves to be counted.
var FactsOf = Ask.facts

// InsertUsage is how tests write rows of their own making, and UsageColumns and ScanUsage how they read them.
var InsertUsage = insertUsage

const UsageColumns = usageColumns

func ScanUsage(row db.Row) (Usage, error) {
	var r ExportRow
	err := r.scan(row)
	return r.Usage, err
}

// ReadChanges is how tests need not wait until a process looks for changes.
var ReadChanges = (*Service).readChanges
