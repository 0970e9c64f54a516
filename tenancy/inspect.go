package tenancy

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

const (
	inspectionBatchSize = 500     // chains that are looked at together
	maxInspectedEntries = 100_000 // entries that one inspection reads, and those of one chain
)

// Inspector finds out what was done to the chains of the audit trail. It remembers how far it found each of them good, and
// reads what came since. It is for one goroutine.
type Inspector struct {
	service  *Service
	verified map[string]chainPosition
}

// chainPosition is how a chain was when it was looked at: how many entries it had, by its head and by count, and the hash of the
// last one and of the one before.
type chainPosition struct {
	seq, entries int64
	hash, prev   string
}

// NewInspector returns one that has seen nothing yet.
func (s *Service) NewInspector() *Inspector {
	return &Inspector{service: s, verified: map[string]chainPosition{}}
}

// FoundFlaw is a flaw of the audit trail that an inspection has found.
type FoundFlaw struct {
	Flaw
	App   string // name of the app whose chain it is; "" = the platform's own
	AppID string // "*" = it is about the number of chains
	At    time.Time
}

// InspectChains looks at every chain: at its head, at how many entries it has, and at those that have come since. With afresh it
// reads them from the first on. It returns the flaws that nobody has found before; a chain that turns out good from its
// first entry to its last has none any more. Of a trail too long for one inspection the next ones read the rest.
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
			some, err := i.service.storeFlaws(ctx, v, n == int(h.entries))
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
	some, err := i.service.storeFlaws(ctx, v, true)
	return append(found, some...), err
}

// countedHead is a head, and how many entries its chain has.
type countedHead struct {
	chainHead
	entries int64
}

// readHeads reads some of the heads behind one.
func (i *Inspector) readHeads(ctx context.Context, after string, first bool) (heads []countedHead, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		var h countedHead
		err := row.Scan(&h.chain, &h.seq, &h.hash, &h.seal, &h.entries)
		heads = append(heads, h)
		return err
	}, `SELECT h.app_id, h.seq, h.hash, h.seal, (SELECT COUNT(*) FROM audit a WHERE a.app_id = h.app_id AND a.seq > 0)
		FROM audit_head h WHERE h.app_id <> '*' AND (h.app_id > $1 OR $2) ORDER BY h.app_id LIMIT $3`, after, first, inspectionBatchSize)
	if err := i.service.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look at the heads of the audit trail: %w", err)
	}
	return heads, nil
}

// inspectChain verifies what came since, or all of a chain that has not as many entries as it should or does not go on as it was,
// such as one that was redacted, and returns how many entries it read.
func (i *Inspector) inspectChain(ctx context.Context, h countedHead) (out VerifyResult, read int, err error) {
	from := i.verified[h.chain]
	out, read, err = i.verifySince(ctx, h, from)
	if err == nil && len(out.Flaws) > 0 && from != (chainPosition{}) {
		out, read, err = i.verifySince(ctx, h, chainPosition{})
	}
	return out, read, err
}

// verifySince verifies a chain from where it stood. The last entry that was good is read again.
func (i *Inspector) verifySince(ctx context.Context, h countedHead, from chainPosition) (out VerifyResult, read int, err error) {
	if h.entries-from.entries != h.seq-from.seq || h.entries != h.seq {
		from = chainPosition{}
	}
	next := chainPosition{seq: h.seq, entries: h.entries, hash: h.hash, prev: from.prev}
	v := Verifier{OnResult: func(x VerifyResult) { out = x }, current: &VerifyResult{AppID: h.chain, Hash: from.prev}, seq: max(from.seq-1, 0)}
	for more := true; more; {
		entries, err := i.service.readChainEntries(ctx, h.chain, AuditFilter{}, v.seq)
		if err != nil {
			return out, read, fmt.Errorf("inspect the audit trail of %q: %w", h.chain, err)
		}
		more = len(entries) == exportBatchSize
		for j := range entries {
			if entries[j].Seq > h.seq { // it has grown since
				more = false
				break
			}
			next.prev = v.current.Hash
			v.verifyEntry(&entries[j])
			read++
		}
	}
	v.verifyHead(&ExportedHead{AppID: db.ID(h.chain), Entries: h.seq, Hash: h.hash, Sealed: i.service.isGenuine(h.chainHead)})
	if h.entries > h.seq {
		out.addFlaw(nil, "there are entries behind its end, which is at %d", h.seq)
	}
	i.verified[h.chain] = next
	return out, read, nil
}

// verifyChainCount verifies how many chains there are.
func (i *Inspector) verifyChainCount(ctx context.Context) (VerifyResult, error) {
	v := VerifyResult{AppID: allChains}
	h := chainHead{chain: allChains}
	var chains int64
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&chains) }, `SELECT COUNT(*) FROM audit_head WHERE app_id <> '*'`)
	b.Query(func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal, &chains) },
		`SELECT h.seq, h.hash, h.seal, (SELECT COUNT(*) FROM audit_head WHERE app_id <> '*') FROM audit_head h WHERE h.app_id = '*'`)
	if err := i.service.db.Platform().Do(ctx, &b); err != nil {
		return v, fmt.Errorf("count the chains of the audit trail: %w", err)
	}
	switch {
	case h.seal == nil && chains == 0:
	case !i.service.isGenuine(h):
		v.addFlaw(nil, "the number of its chains is not as this platform sealed it")
	case h.seq != chains:
		v.addFlaw(nil, "there are %d chains and should be %d", chains, h.seq)
	}
	return v, nil
}

// storeFlaws keeps the flaws of a chain and returns those that are new. One that was looked at as a whole has no others.
func (s *Service) storeFlaws(ctx context.Context, v VerifyResult, complete bool) (found []FoundFlaw, err error) {
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
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("keep the flaws of the audit trail: %w", err)
	}
	for i, f := range v.Flaws {
		if added[i] > 0 {
			found = append(found, FoundFlaw{Flaw: f, App: v.App, AppID: v.AppID})
		}
	}
	return found, nil
}

// maxListedFlaws bounds how many flaws are told at once.
const maxListedFlaws = 100

// ListFoundFlaws returns what inspections have found out about the chains of an app, by name or id, or about all, and how much it is.
func (s *Service) ListFoundFlaws(ctx context.Context, app string) (found []FoundFlaw, total int64, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&total) }, `SELECT COUNT(*) FROM audit_flaw WHERE (CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1)`, app)
	b.Query(func(row db.Row) error {
		var d FoundFlaw
		var at int64
		err := row.Scan(&d.AppID, &d.Seq, &d.Text, &d.App, &d.ID, &at)
		d.At = timeFromMicros(at)
		found = append(found, d)
		return err
	}, `SELECT app_id, seq, flaw, app, entry, found_at FROM audit_flaw WHERE (CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1)
		ORDER BY found_at, app_id, seq, flaw LIMIT $2`, app, maxListedFlaws)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("read the flaws of the audit trail: %w", err)
	}
	return found, total, nil
}
