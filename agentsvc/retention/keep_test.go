package retention_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc/retention"
	"stoa/agentsvc/store"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestUnbuiltPolicy changes an app to a revision whose policy cannot be read: the former policy stays in effect until a
// later revision has one, and the log has a warning.
func TestUnbuiltPolicy(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	apps := tenancytest.NewService(t, d)
	acme := tenancytest.CreateApp(t, apps, tenancy.Draft{Name: "acme"})
	var log strings.Builder
	var loadErr error
	loads, swept := 0, atomic.Int64{}
	kept := time.Nanosecond // so that the app is due each second
	s := retention.NewSweeper(d, retention.Options{
		Apps: apps,
		LoadPolicy: func(_ context.Context, a tenancy.App) (retention.Policy, error) {
			if a.ID != acme.ID {
				return retention.Policy{}, nil
			}
			loads++
			return retention.Policy{Retention: store.Retention{Sessions: kept}, ExternalSessions: true}, loadErr
		},
		SweepExternal: func(_ context.Context, _ db.ID, r store.Retention) (store.SweepCounts, error) {
			swept.Store(int64(r.Sessions))
			return store.SweepCounts{}, nil
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	checkSwept := func(what string, want time.Duration) {
		t.Helper()
		swept.Store(0)
		dbtest.WaitUntil(t, what, func() bool {
			if err := s.SweepDueApps(t.Context()); err != nil {
				t.Fatal(err)
			}
			return swept.Load() != 0
		})
		if got := time.Duration(swept.Load()); got != want {
			t.Errorf("%s: kept for %s, want %s", what, got, want)
		}
	}
	change := func(name string) {
		t.Helper()
		if _, err := apps.UpdateApp(t.Context(), audit.Actor{Name: "ops"}, "acme", tenancy.AppChange{DisplayName: &name}, false); err != nil {
			t.Fatal(err)
		}
	}
	checkSwept("the first revision", 1)
	loadErr = errors.New("the configuration does not load")
	kept = 2
	change("broken")
	checkSwept("the revision that does not load", 1)
	if !strings.Contains(log.String(), "app=acme") || !strings.Contains(log.String(), "the configuration does not load") {
		t.Errorf("the log does not name the app and the error:\n%s", &log)
	}
	loadErr = nil
	checkSwept("the error has passed", 2)
	before := loads
	checkSwept("an unchanged app", 2)
	if loads != before {
		t.Error("the policy of an unchanged app was read again")
	}
}
