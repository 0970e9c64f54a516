package billing

import (
	"context"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// GrantCredit exports grantCredit: tests create credits that have expired, which AddCredit refuses.
func GrantCredit(s *Service, ctx context.Context, app tenancy.App, c Credit) error { //nolint:revive // it stands for a method
	_, err := s.grantCredit(ctx, app, c)
	return err
}

// RecountNewBudgets exports recountNewBudgets, so that tests need not wait for its interval.
var RecountNewBudgets = (*Service).recountNewBudgets

// RunFactsOf exports UsageRequest.runFacts.
var RunFactsOf = UsageRequest.runFacts

// InsertUsage, UsageColumns and ScanUsage let tests write and read rows of any content.
var InsertUsage = insertUsage

const UsageColumns = usageColumns

func ScanUsage(row db.Row) (Usage, error) {
	var r ExportRow
	err := r.scanRow(row)
	return r.Usage, err
}

// ReadChanges exports readChanges, so that tests need not wait for its interval.
var ReadChanges = (*Service).readChanges
