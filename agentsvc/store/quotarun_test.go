package store

import (
	"testing"
	"time"

	"stoa/tenancy/db"
)

// TestQuotaMeasuresWhenNeeded: a tenant that writes little is not measured, one is again before it could be wrong by much, one that
// is refused once a minute, and none more often than its measurement may cost.
func TestQuotaMeasuresWhenNeeded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		t    stored
		want bool
	}{
		"new":                     {stored{added: 1000, at: now}, false},
		"new, and wrote":          {stored{added: 1025, at: now}, true},
		"known":                   {stored{known: true, measured: 1 << 19, added: 1 << 15, at: now}, false},
		"known, a part of free":   {stored{known: true, measured: 1 << 19, added: 1<<15 + 1, at: now}, true},
		"too soon":                {stored{known: true, measured: 1 << 19, added: 1 << 18, at: now, next: now.Add(time.Second)}, false},
		"full":                    {stored{known: true, measured: 1 << 20, at: now.Add(-2 * time.Minute)}, false},
		"full, and refused":       {stored{known: true, measured: 1 << 20, refused: 1, at: now.Add(-2 * time.Minute)}, true},
		"refused a moment ago":    {stored{known: true, measured: 1 << 20, refused: 1, at: now.Add(-30 * time.Second)}, false},
		"wrote little in an hour": {stored{known: true, added: 1, at: now.Add(-time.Hour)}, true},
		"nothing in an hour":      {stored{known: true, at: now.Add(-time.Hour)}, false},
	} {
		q := NewQuota(nil, QuotaOptions{Each: 1 << 20})
		q.tenants["acme"] = &c.t
		if got := len(q.toMeasure(now)) == 1; got != c.want {
			t.Errorf("%s: measured %v, want %v", name, got, c.want)
		}
		if _, there := q.tenants["acme"]; there == (name == "nothing in an hour") {
			t.Errorf("%s: it is remembered: %v", name, there)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	q := NewQuota(nil, QuotaOptions{Each: 1 << 60})
	for b.Loop() {
		if err := q.Admit("acme", 1000, db.StoresMore); err != nil {
			b.Fatal(err)
		}
	}
}
