package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
	"stoa/tenancy/db/dbtest"
)

// TestBackupAlert checks that the alert has the bound of the check.
func TestBackupAlert(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("(stoa_db_last_backup_seconds) > %d * 3600\n", maxBackupAge/time.Hour); !strings.Contains(string(alerts), want) {
		t.Errorf("deploy/prometheus/alerts.yaml has no expression with %q", want)
	}
}

// TestLastBackup checks which ages of the last backup are reported as too old, on both engines.
func TestLastBackup(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		i := newTestInspector(t, server.Flags{Database: pointTo(d.URL())}, nil)
		wantCheck(t, i.checkDatabase(t.Context()), "last_backup", Warning, "none is recorded")
		begun := time.Date(2026, 11, 27, 3, 15, 0, 0, time.UTC)
		if err := backup.RecordTime(t.Context(), d.URL(), begun); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			age    time.Duration
			status Status
			detail string
		}{
			{-time.Second, OK, "begun 0 min ago, at 2026-11-27T03:15:00Z"}, // the clock of another machine
			{119 * time.Minute, OK, "begun 119 min ago"},
			{36 * time.Hour, OK, "begun 36 h ago"},
			{36*time.Hour + time.Minute, Warning, "begun 36 h ago"},
			{9*24*time.Hour + 5*time.Hour, Warning, "begun 9 days ago"},
		} {
			i.now = func() time.Time { return begun.Add(tt.age) }
			wantCheck(t, i.checkDatabase(t.Context()), "last_backup", tt.status, tt.detail)
		}
	})
}
