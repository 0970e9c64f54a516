package budget

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"stoa/tenancy/db"
)

// TopicThreshold is published when a budget has reached a threshold. The key is the app's id, "" for the platform.
const TopicThreshold = "budget_threshold"

// ThresholdEvent records that a budget has reached a threshold. There is at most one for a budget, window and
// threshold.
type ThresholdEvent struct {
	App db.ID
	// ID is the budget's id, Budget its name.
	ID     string
	Budget string
	// Since is the begin of the window.
	Since time.Time
	// Threshold is in per cent of the budget's amount.
	Threshold int
	// Committed and Amount are the balance at that moment, in the budget's unit.
	Committed int64
	Amount    int64
	At        time.Time
}

// recordPassedThresholds inserts an event for each threshold that b has reached and that this process has not recorded
// yet. A new event is logged and published. A failure is logged only: the next settlement tries again.
func (s *Service) recordPassedThresholds(ctx context.Context, b Balance, since time.Time) {
	for _, t := range b.Thresholds {
		// Thresholds are ascending.
		if !hasReached(b.Committed, b.Amount, t) {
			break
		}
		key := fmt.Sprintf("%s/%d/%d", b.ID, since.UnixMicro(), t)
		if _, known := s.recordedThresholds.LoadOrStore(key, true); known {
			continue
		}
		var n int64
		var q db.Batch
		q.Exec(&n, `INSERT INTO budget_event (tenant, budget, since, threshold, name, committed, amount, at, told)
			VALUES ($1, $2, $3, $4, $5, $6, $7, stoa_now(), FALSE) ON CONFLICT DO NOTHING`,
			string(b.App), b.ID, since.UnixMicro(), t, b.Name, b.Committed, b.Amount)
		if err := s.db.Platform().Do(ctx, &q); err != nil {
			s.recordedThresholds.Delete(key)
			s.log.WarnContext(ctx, "a threshold of a budget could not be recorded", "tenant", b.App, "budget", b.Name, "error", err)
			return
		}
		if n > 0 {
			attrs := []slog.Attr{
				slog.String("tenant", string(b.App)), slog.String("budget", b.Name), slog.Int("threshold", t),
				slog.Int64("committed", b.Committed), slog.Int64("amount", b.Amount), slog.String("unit", string(b.Unit)),
			}
			if b.Unit == InMoney {
				attrs = append(attrs, slog.String("currency", b.Currency),
					slog.String("committed_decimal", b.Unit.FormatDecimal(b.Committed, b.Currency)), slog.String("amount_decimal", b.Unit.FormatDecimal(b.Amount, b.Currency)))
			}
			s.log.LogAttrs(ctx, slog.LevelWarn, "a budget has passed a threshold", attrs...)
			s.bus.Publish(TopicThreshold, string(b.App))
		}
	}
}

// hasReached reports whether n is at least percent of amount. The products have 128 bits, so large amounts are exact.
func hasReached(n, amount int64, percent int) bool {
	hi, lo := bits.Mul64(uint64(max(0, n)), 100)
	wantHi, wantLo := bits.Mul64(uint64(max(0, amount)), uint64(percent))
	return hi > wantHi || hi == wantHi && lo >= wantLo
}

const thresholdEventColumns = `e.tenant, e.budget, e.name, e.since, e.threshold, e.committed, e.amount, e.at`

// scanRow reads a row of thresholdEventColumns, followed by the columns of more.
func (e *ThresholdEvent) scanRow(row db.Row, more ...any) error {
	var since, at int64
	err := row.Scan(append([]any{(*string)(&e.App), &e.ID, &e.Budget, &since, &e.Threshold, &e.Committed, &e.Amount, &at}, more...)...)
	e.Since, e.At = time.UnixMicro(since).UTC(), time.UnixMicro(at).UTC()
	return err
}

// readThresholdEvents sets PassedThresholds of the balances, from the events of their current windows.
func (s *Service) readThresholdEvents(ctx context.Context, app db.ID, list []Balance) error {
	var b db.Batch
	for i, x := range list {
		since, _ := x.Window.Bounds(s.databaseNow(), x.location)
		b.Query(func(row db.Row) error {
			var p ThresholdEvent
			err := p.scanRow(row)
			list[i].PassedThresholds = append(list[i].PassedThresholds, p)
			return err
		}, `SELECT `+thresholdEventColumns+` FROM budget_event e WHERE e.tenant = $1 AND e.budget = $2 AND e.since = $3 ORDER BY e.threshold`,
			string(app), x.ID, since.UnixMicro())
	}
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("read passed thresholds: %w", err)
	}
	return nil
}
