package export

import (
	"context"
	"fmt"
	"time"

	"stoa/billing/budget"
)

// ThresholdNotifier is implemented by a [Sink] that also receives threshold notices. Delivery is at least once.
type ThresholdNotifier interface {
	NotifyThreshold(ctx context.Context, n budget.ThresholdNotice) error
}

// noticeBatchSize bounds the notices that are sent between two batches of usage.
const noticeBatchSize = 100

// notifyThresholds delivers the notices that were not delivered yet and are younger than the export, oldest first. A
// crash before the mark delivers a notice again.
func (e *Exporter) notifyThresholds(ctx context.Context, x *exportState) error {
	to, ok := e.sinks[x.name].(ThresholdNotifier)
	if !ok {
		return nil
	}
	list, err := e.budgets.ListNotices(ctx, time.UnixMicro(x.since), noticeBatchSize)
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
		if err := e.budgets.MarkDelivered(ctx, n); err != nil {
			return fmt.Errorf("note that export %s knows of a threshold: %w", x.name, err)
		}
	}
	return nil
}
