package queue

import (
	"context"
	"slices"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// tenantRing is a process's place in the ring of the apps. Each app with runs to claim has its turn, in which it gets as
// many as it weighs; then it is the next one's, however much the first has left.
type tenantRing struct {
	runs      *store.RunQueue
	worker    string
	current   db.ID // whose turn it is
	remaining int64 // of that turn
}

const (
	// ringLookahead is how many apps are looked at beyond those that may be served.
	ringLookahead = 8
	// maxRingReads bounds how often the ring is looked at for an app that has room.
	maxRingReads = 32
)

// claimRuns leases up to free runs to this process, where apps have runs at work as has says. With suspects one of them may be a
// run that workers died with.
func (t *tenantRing) claimRuns(ctx context.Context, free int, has map[db.ID]int, suspects bool) ([]store.Run, error) {
	var runs []store.Run
	suspects = suspects && free > 1 // whose app may be one that the last place is not for
	for range maxRingReads {
		n := free - len(runs) + ringLookahead
		shares, err := t.runs.ListShares(ctx, t.current, n, suspects)
		if err != nil {
			return runs, err
		}
		got, err := t.runs.ClaimRuns(ctx, t.worker, t.allotShares(shares, free-len(runs), has))
		runs = append(runs, got...)
		for _, run := range got {
			has[run.Tenant]++
		}
		if err != nil || len(runs) == free || len(shares) < n && (!canHaveMore(shares, got) || free-len(runs) == 1 && allHaveRuns(shares, has)) {
			return runs, err
		}
		suspects = false
		if len(got) == 0 { // none of these has room; go on behind them
			t.current, t.remaining = shares[len(shares)-1].Tenant, 0
		}
	}
	return runs, nil
}

// canHaveMore reports whether an app of which got was claimed may have more than that.
func canHaveMore(shares []store.Share, got []store.Run) bool {
	claimed := map[db.ID]int64{}
	for _, run := range got {
		claimed[run.Tenant]++
	}
	return slices.ContainsFunc(shares, func(s store.Share) bool {
		return s.ClaimCount > 0 && claimed[s.Tenant] >= s.ClaimCount && !s.SuspectOnly
	})
}

// allHaveRuns reports whether each of the apps has a run at work.
func allHaveRuns(shares []store.Share, has map[db.ID]int) bool {
	return !slices.ContainsFunc(shares, func(s store.Share) bool { return has[s.Tenant] == 0 })
}

// claimOneRun leases a run to this process of the first app that may have it.
func (t *tenantRing) claimOneRun(ctx context.Context, canTake func(db.ID) bool) ([]store.Run, error) {
	at := t.current
	for range maxRingReads {
		shares, err := t.runs.ListShares(ctx, at, ringLookahead, false)
		if err != nil {
			return nil, err
		}
		for _, s := range shares {
			if s.AvailableRuns() <= 0 || !canTake(s.Tenant) {
				continue
			}
			s.ClaimCount = 1
			runs, err := t.runs.ClaimRuns(ctx, t.worker, []store.Share{s})
			if err != nil || len(runs) > 0 {
				t.current, t.remaining = s.Tenant, 0
				return runs, err
			}
		}
		if len(shares) < ringLookahead {
			break
		}
		at = shares[len(shares)-1].Tenant
	}
	return nil, nil
}

// allotShares says how many runs of each app to claim, free in all, and moves on by as many turns. The last free place is for an app
// that has no run at work.
func (t *tenantRing) allotShares(shares []store.Share, free int, has map[db.ID]int) []store.Share {
	ring := shares
	if len(ring) > 0 && ring[0].SuspectOnly {
		ring, free = ring[1:], free-1
	}
	if len(ring) > 0 && (ring[0].Tenant != t.current || t.remaining == 0) {
		if ring[0].Tenant == t.current { // has had its turn
			first := ring[0]
			copy(ring, ring[1:])
			ring[len(ring)-1] = first
		}
		t.remaining = 0
	}
	for served := true; served && free > 0; {
		served = false
		for i := range ring {
			s := &ring[i]
			quota := s.Weight
			if t.remaining > 0 {
				quota, t.remaining = t.remaining, 0
			}
			most := int64(free) - 1
			if has[s.Tenant] == 0 && s.ClaimCount == 0 {
				most = max(1, most)
			}
			n := max(0, min(quota, s.AvailableRuns(), most))
			if n == 0 {
				continue
			}
			s.ClaimCount += n
			free -= int(n)
			served = true
			t.current, t.remaining = s.Tenant, quota-n
			if free == 0 {
				break
			}
			t.remaining = 0
		}
	}
	return shares
}
