package tenancy_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestMaintenanceLog checks that a failure of the maintenance that repeats, such as a missing master key, is logged once,
// again when it changes, and once when it is over, and that a line names a bounded number of apps.
func TestMaintenanceLog(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		former := tenancytest.NewService(t, d)
		create := func(from, to int) {
			for i := from; i < to; i++ {
				tenancytest.CreateApp(t, former, tenancy.Draft{Name: fmt.Sprint("app-", i)})
			}
		}
		create(0, 12)
		var log bytes.Buffer
		o := tenancytest.NewOptions()
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		lacks := tenancy.New(d, tenancytest.NewKeyring(t, bytes.Repeat([]byte{8}, 32)), tenancytest.NewBus(), o)
		round := lacks.NewMaintenanceRound()
		expect := func(when string, failed, recovered int) {
			t.Helper()
			round(t.Context())
			round(t.Context())
			text := log.String()
			log.Reset()
			if a, b := strings.Count(text, "level=ERROR"), strings.Count(text, "succeeds again"); a != failed || b != recovered {
				t.Errorf("%s: %d errors and %d recoveries, want %d and %d:\n%s", when, a, b, failed, recovered, text)
			}
			if n := strings.Count(text, "rewrap the data key of app"); failed > 0 && (n != 10 || !strings.Contains(text, "more apps")) {
				t.Errorf("%s: a line names %d apps, want 10 and the number of the others:\n%s", when, n, text)
			}
		}
		expect("without the key", 1, 0)
		expect("still without", 0, 0)
		create(12, 13)
		expect("one app more", 1, 0)
		tenancytest.ExecSQL(t, d.Platform(), `UPDATE app SET master_key = $1`, tenancytest.NewKeyring(t, bytes.Repeat([]byte{8}, 32)).CurrentKeyID())
		expect("without rows under the key", 0, 1)
		expect("later", 0, 0)
	})
}
