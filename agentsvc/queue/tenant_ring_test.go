package queue

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestAllot: several claims, one after another, allot turns to tenants that always have more runs.
func TestAllot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		shares []store.Share // in the order of the ring
		free   []int         // free slots at each claim, the last of which is for a tenant without one
		want   []string
		has    map[db.ID]int // slots that tenants occupy, at each claim
	}{
		{name: "one app has all but one", shares: []store.Share{{Tenant: "a", Weight: 1}}, free: []int{4, 2}, want: []string{"a3", "a1"}},
		{name: "in turns", shares: []store.Share{{Tenant: "a", Weight: 1}, {Tenant: "b", Weight: 1}}, free: []int{1, 1, 1, 4}, want: []string{"a1", "b1", "a1", "a1 b2"}},
		{name: "by weight", shares: []store.Share{{Tenant: "a", Weight: 3}, {Tenant: "b", Weight: 1}}, free: []int{1, 1, 1, 1, 1, 9}, want: []string{"a1", "a1", "a1", "b1", "a1", "a6 b2"}},
		{name: "up to a limit", shares: []store.Share{{Tenant: "a", Weight: 5, MaxRunning: 3, Running: 1}, {Tenant: "b", Weight: 1}}, free: []int{7}, want: []string{"a2 b4"}},
		{name: "not of a closed app", shares: []store.Share{{Tenant: "a", Weight: 1, Closed: true}, {Tenant: "b", Weight: 1}}, free: []int{3}, want: []string{"b2"}},
		{name: "no room at all", shares: []store.Share{{Tenant: "a", Weight: 1, MaxRunning: 2, Running: 3}}, free: []int{2}, want: []string{""}},
		{name: "a suspect beside", shares: []store.Share{{Tenant: "x", Weight: 1, SuspectOnly: true, ClaimCount: 1}, {Tenant: "a", Weight: 1}}, free: []int{4}, want: []string{"x1 a2"}},
		{name: "the last place", shares: []store.Share{{Tenant: "a", Weight: 9}}, free: []int{1, 2}, want: []string{"", "a1"}, has: map[db.ID]int{"a": 1}},
		{name: "the last place for another", shares: []store.Share{{Tenant: "a", Weight: 9}, {Tenant: "b", Weight: 9}}, free: []int{1}, want: []string{"b1"}, has: map[db.ID]int{"a": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var at tenantRing
			var got []string
			for _, free := range tt.free {
				got = append(got, formatShares(at.allotShares(rotateRing(tt.shares, at.current), free, tt.has)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// rotateRing returns the ring as ListShares does, from a tenant on.
func rotateRing(shares []store.Share, at db.ID) []store.Share {
	var ring, before []store.Share
	for _, s := range shares {
		if s.Tenant < at && !s.SuspectOnly {
			before = append(before, s)
			continue
		}
		ring = append(ring, s)
	}
	return append(ring, before...)
}

func formatShares(shares []store.Share) (out string) {
	byName := map[db.ID]int64{}
	for _, s := range shares {
		byName[s.Tenant] += s.ClaimCount
	}
	for _, name := range []db.ID{"x", "a", "b"} {
		if n := byName[name]; n > 0 {
			out += fmt.Sprintf(" %s%d", name, n)
		}
	}
	if out == "" {
		return ""
	}
	return out[1:]
}
