package queue

import (
	"context"
	"slices"

	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// tenantRing is the position of this process in a round robin over the tenants that have runs to claim, ordered by
// tenant id. In its turn a tenant gets as many runs as its weight; then the next one follows, however many runs the
// first still has. Used only by the claim loop, so it needs no lock.
type tenantRing struct {
	runs      *store.RunQueue
	worker    string
	current   db.ID // the tenant whose turn it is
	remaining int64 // runs left of that turn
}

const (
	// ringLookahead is how many tenants are read beyond the number of free slots, because some of those read may be
	// at their limits.
	ringLookahead = 8
	// maxRingReads bounds how often one claim reads the ring to find a tenant that may have more runs.
	maxRingReads = 32
)

// claimRuns leases up to free runs to this process; has is the number of runs that each tenant executes here and is
// updated. With suspects one of the claimed runs may be a suspect, a run with which workers died before.
func (t *tenantRing) claimRuns(ctx context.Context, free int, has map[db.ID]int, suspects bool) ([]store.Run, error) {
	var runs []store.Run
	suspects = suspects && free > 1 // a suspect's tenant may be one that the last slot is not for
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
		// Stop when all slots are filled, or when the whole ring was read and no tenant of it can fill another slot.
		if err != nil || len(runs) == free || len(shares) < n && (!canHaveMore(shares, got) || free-len(runs) == 1 && allHaveRuns(shares, has)) {
			return runs, err
		}
		suspects = false
		if len(got) == 0 { // all of these are at their limits; continue behind them
			t.current, t.remaining = shares[len(shares)-1].Tenant, 0
		}
	}
	return runs, nil
}

// canHaveMore reports whether a tenant received all that it was allotted, so that it may have more runs waiting.
func canHaveMore(shares []store.Share, got []store.Run) bool {
	claimed := map[db.ID]int64{}
	for _, run := range got {
		claimed[run.Tenant]++
	}
	return slices.ContainsFunc(shares, func(s store.Share) bool {
		return s.ClaimCount > 0 && claimed[s.Tenant] >= s.ClaimCount && !s.SuspectOnly
	})
}

// allHaveRuns reports whether every tenant has a run here. Then none of them may take the last slot.
func allHaveRuns(shares []store.Share, has map[db.ID]int) bool {
	return !slices.ContainsFunc(shares, func(s store.Share) bool { return has[s.Tenant] == 0 })
}

// claimOneRun leases one run of the first tenant, from the current one on, that canTake accepts.
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

// allotShares sets ClaimCount of each share, free in sum, and advances the ring by the turns that this uses. Several
// rounds are made while slots remain. The last free slot is for a tenant that has no run here.
func (t *tenantRing) allotShares(shares []store.Share, free int, has map[db.ID]int) []store.Share {
	ring := shares
	if len(ring) > 0 && ring[0].SuspectOnly {
		ring, free = ring[1:], free-1
	}
	if len(ring) > 0 && (ring[0].Tenant != t.current || t.remaining == 0) {
		if ring[0].Tenant == t.current { // its turn is used up: it goes last
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
			// The first tenant may continue a turn that the previous claim could not finish for lack of slots.
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
