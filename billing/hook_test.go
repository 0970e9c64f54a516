package billing

import "stoa/tenancy/db"

// Grant is how tests make credits that are over already.
var Grant = (*Service).grant

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
