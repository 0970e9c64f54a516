package usage_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// stoppingLog is a log that calls stop after a line with last. One goroutine writes it.
type stoppingLog struct {
	bytes.Buffer
	last string
	stop context.CancelFunc
}

func (l *stoppingLog) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.last) {
		l.stop()
	}
	return l.Buffer.Write(line)
}

// TestPendingLog checks the lines about usage that waited for the database: that it is written, and an error where there
// was one.
func TestPendingLog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		failed error
		last   string
		errors int
	}{
		{"written", nil, "usage that waited for the database is written", 0},
		{"balances not computed", errors.New("no balance"), "balances of budgets", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				log := &stoppingLog{last: tt.last, stop: stop}
				app := usagetest.NewApp()
				s := usage.New(d, usagetest.Open(t, d).Prices, slog.New(slog.NewTextHandler(log, nil)))
				s.OnQueuedWritten(func(context.Context, db.ID, []usage.Row) error { return tt.failed })
				s.QueueRows(app.ID, []usage.Row{{Task: "t", Key: "k", Usage: price.Usage{At: time.Now(), Kind: amount.Run}}})
				if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v:\n%s", err, log)
				}
				if n := strings.Count(log.String(), "error="); n != tt.errors {
					t.Errorf("%d lines have an error, want %d:\n%s", n, tt.errors, log)
				}
			})
		})
	}
}
