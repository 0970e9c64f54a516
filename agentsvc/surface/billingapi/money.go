package billingapi

import (
	"stoa/agentsvc"
	"stoa/billing/amount"
)

// decimalSuffix is added to the name of a member in nano-units: that member has the same amount in whole units of the
// currency, as text.
const decimalSuffix = "_decimal"

// mergeAmount returns the amount of a request that names it in nano-units, as a decimal or both ways. A body that was
// read and changed in one of the two is an error, and one without either: what costs nothing must say so.
func mergeAmount(field string, nano *int64, decimal string) (int64, error) {
	if decimal == "" {
		if nano == nil {
			return 0, agentsvc.NewInvalidError(field, "is missing")
		}
		return *nano, nil
	}
	m, err := amount.ParseDecimal(decimal)
	if err != nil {
		return 0, agentsvc.NewInvalidError(field+decimalSuffix, "%v", err)
	}
	if nano != nil && *nano != 0 && *nano != int64(m) {
		return 0, agentsvc.NewInvalidError(field+decimalSuffix, "%s is not %d nano-units; send one of the two", decimal, *nano)
	}
	return int64(m), nil
}
