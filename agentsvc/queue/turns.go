package queue

import (
	"context"
	"slices"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// turns is a process's place in the ring of the apps. Each app with runs to claim has its turn, in which it gets as
// many as it weighs; then it is the next one's, however much the first has left.
type turns struct {
	runs   *store.Runs
	worker string
	at     db.ID // whose turn it is
	left   int64 // of that turn
}

const (
	// ringPart is how many apps are looked at beyond those that may be served.
	ringPart = 8
	// ringLooks bounds how often the ring is looked at for an app that has room.
	ringLooks = 32
)

// claim leases up to free runs to this process, where apps have runs at work as has says. With suspects one of them may be a
// run that workers died with.
func (t *turns) claim(ctx context.Context, free int, has map[db.ID]int, suspects bool) ([]store.Run, error) {
	var runs []store.Run
	suspects = suspects && free > 1 // whose app may be one that the last place is not for
	for range ringLooks {
		n := free - len(runs) + ringPart
		shares, err := t.runs.Turns(ctx, t.at, n, suspects)
		if err != nil {
			return runs, err
		}
		got, err := t.runs.Claim(ctx, t.worker, t.allot(shares, free-len(runs), has))
		runs = append(runs, got...)
		for _, run := range got {
			has[run.Tenant]++
		}
		if err != nil || len(runs) == free || len(shares) < n && (!more(shares, got) || free-len(runs) == 1 && allHave(shares, has)) {
			return runs, err
		}
		suspects = false
		if len(got) == 0 { // none of these has room; go on behind them
			t.at, t.left = shares[len(shares)-1].Tenant, 0
		}
	}
	return runs, nil
}

// more reports whether an app of which got was claimed may have more than that.
func more(shares []store.Share, got []store.Run) bool {
	claimed := map[db.ID]int64{}
	for _, run := range got {
		claimed[run.Tenant]++
	}
	return slices.ContainsFunc(shares, func(s store.Share) bool { return s.Take > 0 && claimed[s.Tenant] >= s.Take && !s.Suspect })
}

// allHave reports whether each of the apps has a run at work.
func allHave(shares []store.Share, has map[db.ID]int) bool {
	return !slices.ContainsFunc(shares, func(s store.Share) bool { return has[s.Tenant] == 0 })
}

// claimOne leases a run to this process of the first app that may have it.
func (t *turns) claimOne(ctx context.Context, may func(db.ID) bool) ([]store.Run, error) {
	at := t.at
	for range ringLooks {
		shares, err := t.runs.Turns(ctx, at, ringPart, false)
		if err != nil {
			return nil, err
		}
		for _, s := range shares {
			if s.Room() <= 0 || !may(s.Tenant) {
				continue
			}
			s.Take = 1
			runs, err := t.runs.Claim(ctx, t.worker, []store.Share{s})
			if err != nil || len(runs) > 0 {
				t.at, t.left = s.Tenant, 0
				return runs, err
			}
		}
		if len(shares) < ringPart {
			break
		}
		at = shares[len(shares)-1].Tenant
	}
	return nil, nil
}

// allot says how many runs of each app to claim, free in all, and moves on by as many turns. The last free place is for an app
// that has no run at work.
func (t *turns) allot(shares []store.Share, free int, has map[db.ID]int) []store.Share {
	ring := shares
	if len(ring) > 0 && ring[0].Suspect {
		ring, free = ring[1:], free-1
	}
	if len(ring) > 0 && (ring[0].Tenant != t.at || t.left == 0) {
		if ring[0].Tenant == t.at { // has had its turn
			first := ring[0]
			copy(ring, ring[1:])
			ring[len(ring)-1] = first
		}
		t.left = 0
	}
	for served := true; served && free > 0; {
		served = false
		for i := range ring {
			s := &ring[i]
			turn := s.Weight
			if t.left > 0 {
				turn, t.left = t.left, 0
			}
			most := int64(free) - 1
			if has[s.Tenant] == 0 && s.Take == 0 {
				most = max(1, most)
			}
			n := max(0, min(turn, s.Room(), most))
			if n == 0 {
				continue
			}
			s.Take += n
			free -= int(n)
			served = true
			t.at, t.left = s.Tenant, turn-n
			if free == 0 {
				break
			}
			t.left = 0
		}
	}
	return shares
}
