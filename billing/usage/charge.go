package usage

import (
	"context"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/tenancy/db"
)

// Charge is what an app is charged for one model call. Currency is "" if no price was in force.
type Charge struct {
	Currency string
	Amount   amount.Money
}

// maxChargesPerQuery bounds the parameters of one statement of LoadCharges.
const maxChargesPerQuery = 500

// LoadCharges returns the charges of model calls of a task, by the ids of the calls ([agentsvc.Usage]). A call without a
// price, or whose row waits for the database, is missing. Where only some of its tokens have a price, the charge is theirs.
func (s *Service) LoadCharges(ctx context.Context, app db.ID, task agentsvc.TaskID, calls []string) (map[string]Charge, error) {
	charges := map[string]Charge{}
	for len(calls) > 0 {
		part := calls[:min(len(calls), maxChargesPerQuery)]
		calls = calls[len(part):]
		marks, args := make([]string, len(part)), []any{string(app), string(task)}
		for i, call := range part {
			marks[i] = fmt.Sprintf("$%d", i+3)
			args = append(args, call)
		}
		var b db.Batch
		b.Query(func(r db.Row) error {
			var call string
			var c Charge
			err := r.Scan(&call, &c.Currency, (*int64)(&c.Amount))
			charges[call] = c
			return err
		}, `SELECT key, currency, charge FROM usage WHERE tenant = $1 AND task = $2 AND currency <> '' AND (charge <> 0 OR NOT unpriced) AND key IN (`+strings.Join(marks, ", ")+`)`, args...)
		if err := s.db.Tenant(app).Do(ctx, &b); err != nil {
			return nil, fmt.Errorf("read the charges of task %s: %w", task, err)
		}
	}
	return charges, nil
}
