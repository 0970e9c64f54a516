package budget

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// ThresholdNotice is a threshold event with the budget's properties, as it is delivered to a sink.
type ThresholdNotice struct {
	ThresholdEvent
	// AppName is "" for a budget of the platform.
	AppName  string
	Scope    Scope
	Unit     Unit
	Currency string
}

// ID returns the id of the notice, which is the same for each delivery, so that a receiver can recognise a repetition.
func (n ThresholdNotice) ID() string {
	return fmt.Sprintf("%s_%d_%d", n.ThresholdEvent.ID, n.Since.UnixMicro(), n.Threshold)
}

// ListNotices returns at most n notices of events since a time that were not delivered yet, oldest first.
func (s *Service) ListNotices(ctx context.Context, since time.Time, n int) ([]ThresholdNotice, error) {
	var list []ThresholdNotice
	var b db.Batch
	b.Query(func(r db.Row) error {
		var x ThresholdNotice
		err := x.scanRow(r, &x.AppName, &x.Scope.Agent, &x.Scope.Key, &x.Scope.User, &x.Scope.Model, (*string)(&x.Unit), &x.Currency)
		list = append(list, x)
		return err
	}, `SELECT `+thresholdEventColumns+`, COALESCE(a.name, e.tenant), x.agent, x.key_id, x.owner_sub, x.model, x.unit, x.currency
		FROM budget_event e JOIN budget x ON x.tenant = e.tenant AND x.id = e.budget LEFT JOIN app a ON a.tenant = e.tenant
		WHERE NOT e.told AND e.at >= $1 ORDER BY e.at, e.budget, e.threshold LIMIT $2`, since.UnixMicro(), n)
	return list, s.db.Platform().Do(ctx, &b)
}

// MarkDelivered records that a notice was delivered (column "told"), so that no process delivers it again.
func (s *Service) MarkDelivered(ctx context.Context, n ThresholdNotice) error {
	var b db.Batch
	b.Exec(nil, `UPDATE budget_event SET told = TRUE WHERE tenant = $1 AND budget = $2 AND since = $3 AND threshold = $4`,
		string(n.App), n.ThresholdEvent.ID, n.Since.UnixMicro(), n.Threshold)
	return s.db.Platform().Do(ctx, &b)
}
