package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Timing of the inspection: how often the process with the lease inspects new entries, how often it reads every entry
// again, and how long its lease lasts without a renewal.
const (
	inspectInterval     = 5 * time.Minute
	fullInspectInterval = 24 * time.Hour
	inspectLeaseTime    = 3 * inspectInterval
)

const (
	// inspectionBatchSize is how many heads are read at a time.
	inspectionBatchSize = 500
	// maxInspectedEntries is how many entries one inspection reads before it stops starting further chains; one long
	// chain may exceed it.
	maxInspectedEntries = 100_000
)

// Lease is held by at most one process on a database at a time.
type Lease interface {
	// Acquire takes the lease for duration, or renews it, and reports whether this process has it now.
	Acquire(ctx context.Context, duration time.Duration) (bool, error)
	// Release gives the lease up if this process has it.
	Release(ctx context.Context) error
}

// Inspector looks for tampering in the chains of the audit trail. It keeps, in memory, the position up to which it
// verified each chain, and verifies only what was added since. It must be used by one goroutine.
type Inspector struct {
	trail *Trail
	lease Lease
	// verified maps a chain to the position of the last inspection.
	verified map[string]chainPosition
	// fullInspectedAt is the start of the last full inspection by this process since it acquired the lease.
	fullInspectedAt time.Time
}

// chainPosition is the state of a chain at its last inspection: the sequence number in its head, the number of entries
// counted, and the hashes of the last entry and of the one before it.
type chainPosition struct {
	seq, entries int64
	hash, prev   string
}

// NewInspector returns an inspector that has verified nothing yet. Of all processes on a database the one with the
// lease inspects the trail ([Inspector.Run]).
func NewInspector(t *Trail, lease Lease) *Inspector {
	return &Inspector{trail: t, lease: lease, verified: map[string]chainPosition{}}
}

// Run inspects at once and then every inspectInterval until ctx ends, releases the lease and returns the error of ctx.
func (i *Inspector) Run(ctx context.Context) error {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		if err := i.InspectIfLeader(ctx); err != nil && ctx.Err() == nil {
			i.trail.chains.log.Warn("the audit trail could not be inspected", "error", err)
		}
		select {
		case <-ctx.Done():
			releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = i.lease.Release(releaseCtx) // on failure the lease expires by itself
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// InspectIfLeader inspects the trail if this process has the lease, and logs each new flaw as an error.
func (i *Inspector) InspectIfLeader(ctx context.Context) error {
	if leader, err := i.lease.Acquire(ctx, inspectLeaseTime); err != nil || !leader {
		// Another process had the lease: what was verified here is out of date.
		i.fullInspectedAt = time.Time{}
		return err
	}
	// The first inspection after the lease was acquired is a full one, because fullInspectedAt is zero.
	full := time.Since(i.fullInspectedAt) >= fullInspectInterval
	if full {
		i.fullInspectedAt = time.Now()
	}
	found, err := i.InspectChains(ctx, full)
	if errors.Is(err, keyring.ErrKeyMissing) {
		// Another process may have the key.
		err = errors.Join(err, i.lease.Release(ctx))
	}
	for _, f := range found {
		i.trail.chains.log.Error("the audit trail is not as it was written: run stoa audit verify", "app", f.App, "tenant", f.AppID, "entry", f.Seq, "id", f.ID, "flaw", f.Text)
	}
	return err
}

// FoundFlaw is a flaw of the audit trail that an inspection found. The platform stores it until the chain is found
// intact.
type FoundFlaw struct {
	Flaw
	// App is the name of the app whose chain it is, "" for the platform's own.
	App string
	// AppID is the app's id, "*" if the flaw is about the number of chains.
	AppID string
	// At is the time when it was found; it is zero in the results of [Inspector.InspectChains].
	At time.Time
}

// InspectChains inspects every chain: its head, the number of its entries and the entries added since the last
// inspection; with afresh all entries. It returns the flaws that no inspection has stored before. If a chain is read as
// a whole and is intact, its stored flaws are deleted. What exceeds maxInspectedEntries is left to the next
// inspections.
func (i *Inspector) InspectChains(ctx context.Context, afresh bool) (found []FoundFlaw, err error) {
	if afresh {
		clear(i.verified)
	}
	for after, first, read := "", true, 0; read < maxInspectedEntries; first = false {
		heads, err := i.readHeads(ctx, after, first)
		if err != nil {
			return found, err
		}
		for _, h := range heads {
			after = h.chain
			if previous, ok := i.verified[h.chain]; ok && previous.seq == h.seq && previous.hash == h.hash && previous.entries == h.entries || read >= maxInspectedEntries {
				continue
			}
			v, n, err := i.inspectChain(ctx, h)
			if read += n; err != nil {
				return found, err
			}
			some, err := i.trail.storeFlaws(ctx, v, n == int(h.entries))
			if found = append(found, some...); err != nil {
				return found, err
			}
		}
		if len(heads) < inspectionBatchSize {
			break
		}
	}
	v, err := i.verifyChainCount(ctx)
	if err != nil {
		return found, err
	}
	some, err := i.trail.storeFlaws(ctx, v, true)
	return append(found, some...), err
}

// countedHead is a head with the number of chained entries that exist. Both numbers must be equal.
type countedHead struct {
	chainHead
	entries int64
}

// readHeads reads up to inspectionBatchSize heads with an id above after; with first also the id "", the platform's
// chain.
func (i *Inspector) readHeads(ctx context.Context, after string, first bool) (heads []countedHead, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		var h countedHead
		err := row.Scan(&h.chain, &h.seq, &h.hash, &h.seal, &h.masterKey, &h.entries)
		heads = append(heads, h)
		return err
	}, `SELECT h.app_id, h.seq, h.hash, h.seal, h.master_key, (SELECT COUNT(*) FROM audit a WHERE a.app_id = h.app_id AND a.seq > 0)
		FROM audit_head h WHERE h.app_id <> '*' AND (h.app_id > $1 OR $2) ORDER BY h.app_id LIMIT $3`, after, first, inspectionBatchSize)
	if err := i.trail.db.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the heads of the audit trail: %w", err)
	}
	return heads, nil
}

// inspectChain verifies the entries added since the last inspection. If that shows a flaw the whole chain is verified
// again, so that the result has all its flaws. read is the number of entries read in the last attempt.
func (i *Inspector) inspectChain(ctx context.Context, h countedHead) (out Result, read int, err error) {
	from := i.verified[h.chain]
	out, read, err = i.verifySince(ctx, h, from)
	if err == nil && len(out.Flaws) > 0 && from != (chainPosition{}) {
		out, read, err = i.verifySince(ctx, h, chainPosition{})
	}
	return out, read, err
}

// verifySince verifies a chain from a position on. The last entry before the position is read again, which shows a
// changed or replaced one. It starts from the beginning if the number of entries does not fit the head.
func (i *Inspector) verifySince(ctx context.Context, h countedHead, from chainPosition) (out Result, read int, err error) {
	sealed := i.trail.chains.checkSeal(h.chainHead)
	if errors.Is(sealed, keyring.ErrKeyMissing) {
		return out, 0, fmt.Errorf("inspect the audit trail of %q: %w", h.chain, sealed)
	}
	if h.entries-from.entries != h.seq-from.seq || h.entries != h.seq {
		from = chainPosition{}
	}
	next := chainPosition{seq: h.seq, entries: h.entries, hash: h.hash, prev: from.prev}
	v := Verifier{OnResult: func(x Result) { out = x }, current: &Result{AppID: h.chain, Hash: from.prev}, seq: max(from.seq-1, 0)}
	for more := true; more; {
		entries, err := i.trail.readChainEntries(ctx, h.chain, Filter{}, v.seq)
		if err != nil {
			return out, read, fmt.Errorf("inspect the audit trail of %q: %w", h.chain, err)
		}
		more = len(entries) == exportBatchSize
		for j := range entries {
			if entries[j].Seq > h.seq { // the chain has grown since
				more = false
				break
			}
			next.prev = v.current.Hash
			v.verifyEntry(&entries[j])
			read++
		}
	}
	v.verifyHead(&Head{AppID: db.ID(h.chain), Entries: h.seq, Hash: h.hash, Sealed: sealed == nil})
	if h.entries > h.seq {
		out.addFlaw(nil, "there are entries after its end, which is at %d", h.seq)
	}
	i.verified[h.chain] = next
	return out, read, nil
}

// verifyChainCount compares the number of heads with the sealed number, which reveals the deletion of a whole chain.
func (i *Inspector) verifyChainCount(ctx context.Context) (Result, error) {
	v := Result{AppID: allChains}
	h := chainHead{chain: allChains}
	var chains int64
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&chains) }, `SELECT COUNT(*) FROM audit_head WHERE app_id <> '*'`)
	b.Query(func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal, &h.masterKey, &chains) },
		`SELECT h.seq, h.hash, h.seal, h.master_key, (SELECT COUNT(*) FROM audit_head WHERE app_id <> '*') FROM audit_head h WHERE h.app_id = '*'`)
	if err := i.trail.db.Do(ctx, &b); err != nil {
		return v, fmt.Errorf("count the chains of the audit trail: %w", err)
	}
	unchained, err := countUnchainedApps(ctx, i.trail.db)
	if err != nil {
		return v, err
	}
	if unchained > 0 {
		v.addFlaw(nil, "%d apps have no chain: their entries are missing", unchained)
	}
	sealed := i.trail.chains.checkSeal(h)
	switch {
	case h.seal == nil && chains == 0:
	case errors.Is(sealed, keyring.ErrKeyMissing):
		return v, fmt.Errorf("inspect the number of the audit trail's chains: %w", sealed)
	case sealed != nil:
		v.addFlaw(nil, "the number of its chains is not as this platform sealed it")
	case h.seq != chains:
		v.addFlaw(nil, "there are %d chains and should be %d", chains, h.seq)
	}
	return v, nil
}

// storeFlaws stores the flaws of a chain and returns those that were not stored yet. complete says that the chain was
// read as a whole, so that an intact one has its former flaws deleted.
func (t *Trail) storeFlaws(ctx context.Context, v Result, complete bool) (found []FoundFlaw, err error) {
	var b db.Batch
	if complete && len(v.Flaws) == 0 {
		b.Exec(nil, `DELETE FROM audit_flaw WHERE app_id = $1`, v.AppID)
	}
	added := make([]int64, len(v.Flaws))
	for i, f := range v.Flaws {
		b.Exec(&added[i], `INSERT INTO audit_flaw (app_id, seq, flaw, app, entry, found_at) VALUES ($1, $2, $3, $4, $5, stoa_now())
			ON CONFLICT DO NOTHING`, v.AppID, f.Seq, f.Text, v.App, f.ID)
	}
	if b.IsEmpty() {
		return nil, nil
	}
	if err := t.db.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("store the flaws of the audit trail: %w", err)
	}
	for i, f := range v.Flaws {
		if added[i] > 0 {
			found = append(found, FoundFlaw{Flaw: f, App: v.App, AppID: v.AppID})
		}
	}
	return found, nil
}

// maxListedFlaws bounds the flaws that ListFlaws returns.
const maxListedFlaws = 100

// ListFlaws returns the stored flaws of an app's chains, by name or id, or of all with "", the oldest first and at
// most maxListedFlaws. total is their full number.
func (t *Trail) ListFlaws(ctx context.Context, app string) (found []FoundFlaw, total int64, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&total) }, `SELECT COUNT(*) FROM audit_flaw WHERE (CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1)`, app)
	b.Query(func(row db.Row) error {
		var d FoundFlaw
		var at int64
		err := row.Scan(&d.AppID, &d.Seq, &d.Text, &d.App, &d.ID, &at)
		d.At = time.UnixMicro(at).UTC()
		found = append(found, d)
		return err
	}, `SELECT app_id, seq, flaw, app, entry, found_at FROM audit_flaw WHERE (CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1)
		ORDER BY found_at, app_id, seq, flaw LIMIT $2`, app, maxListedFlaws)
	if err := t.db.Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("read the flaws of the audit trail: %w", err)
	}
	return found, total, nil
}
