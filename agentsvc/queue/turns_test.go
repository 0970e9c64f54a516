package queue

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestAllot hands out turns, claim after claim, to apps that always have more.
func TestAllot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		shares []store.Share // in the order of the ring
		free   []int         // places at each claim
		want   []string
	}{
		{"one app has all", []store.Share{{Tenant: "a", Weight: 1}}, []int{3, 1}, []string{"a3", "a1"}},
		{"in turns", []store.Share{{Tenant: "a", Weight: 1}, {Tenant: "b", Weight: 1}}, []int{1, 1, 1, 3}, []string{"a1", "b1", "a1", "a1 b2"}},
		{"by weight", []store.Share{{Tenant: "a", Weight: 3}, {Tenant: "b", Weight: 1}}, []int{1, 1, 1, 1, 1, 8}, []string{"a1", "a1", "a1", "b1", "a1", "a6 b2"}},
		{"up to a limit", []store.Share{{Tenant: "a", Weight: 5, Limit: 3, Running: 1}, {Tenant: "b", Weight: 1}}, []int{6}, []string{"a2 b4"}},
		{"not of a closed app", []store.Share{{Tenant: "a", Weight: 1, Closed: true}, {Tenant: "b", Weight: 1}}, []int{2}, []string{"b2"}},
		{"no room at all", []store.Share{{Tenant: "a", Weight: 1, Limit: 2, Running: 3}}, []int{2}, []string{""}},
		{"a suspect beside", []store.Share{{Tenant: "x", Weight: 1, Suspect: true, Take: 1}, {Tenant: "a", Weight: 1}}, []int{3}, []string{"x1 a2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var at turns
			var got []string
			for _, free := range tt.free {
				got = append(got, shown(at.allot(from(tt.shares, at.at), free)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// from is the ring as the database tells it, from an app on.
func from(shares []store.Share, at db.ID) []store.Share {
	var ring, before []store.Share
	for _, s := range shares {
		if s.Tenant < at && !s.Suspect {
			before = append(before, s)
			continue
		}
		ring = append(ring, s)
	}
	return append(ring, before...)
}

func shown(shares []store.Share) (out string) {
	byName := map[db.ID]int64{}
	for _, s := range shares {
		byName[s.Tenant] += s.Take
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
