package billing

import (
	"context"
	"fmt"

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

// ThresholdNotifier is implemented by a [Sink] that also receives threshold notices. Delivery is at least once.
type ThresholdNotifier interface {
	NotifyThreshold(ctx context.Context, n ThresholdNotice) error
}

// noticeBatchSize bounds the notices that are sent between two batches of usage.
const noticeBatchSize = 100

// notifyThresholds delivers the events that were not delivered yet and are younger than the export, oldest first.
// Column "told" marks the delivered ones; a crash before the mark delivers an event again.
func (e *Exporter) notifyThresholds(ctx context.Context, x *exportState) error {
	to, ok := e.sinks[x.name].(ThresholdNotifier)
	if !ok {
		return nil
	}
	var list []ThresholdNotice
	err := e.service.queryPlatform(ctx, func(r db.Row) error {
		var n ThresholdNotice
		err := n.scanRow(r, &n.AppName, &n.Scope.Agent, &n.Scope.Key, &n.Scope.User, &n.Scope.Model, (*string)(&n.Unit), &n.Currency)
		list = append(list, n)
		return err
	}, `SELECT `+thresholdEventColumns+`, COALESCE(a.name, e.tenant), x.agent, x.key_id, x.owner_sub, x.model, x.unit, x.currency
		FROM budget_event e JOIN budget x ON x.tenant = e.tenant AND x.id = e.budget LEFT JOIN app a ON a.tenant = e.tenant
		WHERE NOT e.told AND e.at >= $1 ORDER BY e.at, e.budget, e.threshold LIMIT $2`, x.since, noticeBatchSize)
	if err != nil {
		return fmt.Errorf("look for thresholds that export %s does not know of: %w", x.name, err)
	}
	for _, n := range list {
		sending, cancel := context.WithTimeout(ctx, exportTimeout)
		err := to.NotifyThreshold(sending, n)
		cancel()
		if err != nil {
			return fmt.Errorf("send to export %s a threshold of budget %s: %w", x.name, n.Budget, err)
		}
		var b db.Batch
		b.Exec(nil, `UPDATE budget_event SET told = TRUE WHERE tenant = $1 AND budget = $2 AND since = $3 AND threshold = $4`,
			string(n.App), n.ThresholdEvent.ID, n.Since.UnixMicro(), n.Threshold)
		if err := e.service.db.Platform().Do(ctx, &b); err != nil {
			return fmt.Errorf("note that export %s knows of a threshold: %w", x.name, err)
		}
	}
	return nil
}
