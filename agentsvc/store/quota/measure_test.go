package quota

import (
	"testing"
	"time"

	"stoa/tenancy/db"
)

// TestQuotaMeasuresWhenNeeded: a tenant that writes little is not measured; one is measured again before the estimate
// can be wrong by much; a refused one once a minute; and none more often than the cost of its measurement permits.
func TestQuotaMeasuresWhenNeeded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		t    tenantUsage
		want bool
	}{
		"new":                     {tenantUsage{added: 1000, measuredAt: now}, false},
		"new, and wrote":          {tenantUsage{added: 1025, measuredAt: now}, true},
		"known":                   {tenantUsage{isMeasured: true, measured: 1 << 19, added: 1 << 15, measuredAt: now}, false},
		"known, a part of free":   {tenantUsage{isMeasured: true, measured: 1 << 19, added: 1<<15 + 1, measuredAt: now}, true},
		"too soon":                {tenantUsage{isMeasured: true, measured: 1 << 19, added: 1 << 18, measuredAt: now, nextMeasurement: now.Add(time.Second)}, false},
		"full":                    {tenantUsage{isMeasured: true, measured: 1 << 20, measuredAt: now.Add(-2 * time.Minute)}, false},
		"full, and refused":       {tenantUsage{isMeasured: true, measured: 1 << 20, refused: 1, measuredAt: now.Add(-2 * time.Minute)}, true},
		"refused a moment ago":    {tenantUsage{isMeasured: true, measured: 1 << 20, refused: 1, measuredAt: now.Add(-30 * time.Second)}, false},
		"wrote little in an hour": {tenantUsage{isMeasured: true, added: 1, measuredAt: now.Add(-time.Hour)}, true},
		"nothing in an hour":      {tenantUsage{isMeasured: true, measuredAt: now.Add(-time.Hour)}, false},
	} {
		q := New(nil, Options{PerTenant: 1 << 20})
		q.tenants["acme"] = &c.t
		if got := len(q.dueTenants(now)) == 1; got != c.want {
			t.Errorf("%s: measured %v, want %v", name, got, c.want)
		}
		if _, there := q.tenants["acme"]; there == (name == "nothing in an hour") {
			t.Errorf("%s: it is remembered: %v", name, there)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	q := New(nil, Options{PerTenant: 1 << 60})
	for b.Loop() {
		if err := q.AllowWrite("acme", 1000, db.StoresMore); err != nil {
			b.Fatal(err)
		}
	}
}
