package billing

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"stoa/tenancy/db"
)

// TopicThreshold is signalled when a budget has passed a threshold; its key is the app's id, "" for the platform.
const TopicThreshold = "budget_threshold"

// Passing says that a budget has passed a threshold: once in each window.
type Passing struct {
	App       db.ID
	Budget    string
	Since     time.Time // the beginning of the window
	Threshold int       // per cent
	Committed int64
	Amount    int64
	At        time.Time
}

// passed notes the thresholds that a budget has passed.
func (s *Service) passed(ctx context.Context, b Balance, since time.Time) {
	for _, t := range b.Thresholds {
		if !reaches(b.Committed, b.Amount, t) {
			break
		}
		key := fmt.Sprintf("%s/%d/%d", b.ID, since.UnixMicro(), t)
		if _, known := s.told.LoadOrStore(key, true); known {
			continue
		}
		var n int64
		var q db.Batch
		q.Exec(&n, `INSERT INTO budget_event (tenant, budget, since, threshold, name, committed, amount, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, stoa_now()) ON CONFLICT DO NOTHING`,
			string(b.App), b.ID, since.UnixMicro(), t, b.Name, b.Committed, b.Amount)
		if err := s.db.Platform().Do(ctx, &q); err != nil {
			s.told.Delete(key)
			s.log.WarnContext(ctx, "a threshold of a budget could not be noted", "tenant", b.App, "budget", b.Name, "error", err)
			return
		}
		if n > 0 {
			s.log.LogAttrs(ctx, slog.LevelWarn, "a budget has passed a threshold", slog.String("tenant", string(b.App)), slog.String("budget", b.Name),
				slog.Int("threshold", t), slog.Int64("committed", b.Committed), slog.Int64("amount", b.Amount), slog.String("unit", string(b.Unit)))
			s.bus.Publish(TopicThreshold, string(b.App))
		}
	}
}

// reaches reports whether n is at least so many per cent of amount.
func reaches(n, amount int64, percent int) bool {
	hi, lo := bits.Mul64(uint64(max(0, n)), 100)
	wantHi, wantLo := bits.Mul64(uint64(max(0, amount)), uint64(percent))
	return hi > wantHi || hi == wantHi && lo >= wantLo
}

// Passings returns which thresholds the budgets of an app have passed since a time, the newest last.
func (s *Service) Passings(ctx context.Context, app db.ID, since time.Time) ([]Passing, error) {
	var list []Passing
	var b db.Batch
	b.Query(func(row db.Row) error {
		p := Passing{App: app}
		var window, at int64
		err := row.Scan(&p.Budget, &window, &p.Threshold, &p.Committed, &p.Amount, &at)
		p.Since, p.At = micros(window), micros(at)
		list = append(list, p)
		return err
	}, `SELECT name, since, threshold, committed, amount, at FROM budget_event WHERE tenant = $1 AND at >= $2 ORDER BY at, threshold`,
		string(app), since.UnixMicro())
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read passed thresholds: %w", err)
	}
	return list, nil
}
