package tenancy

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

const (
	perInspection = 500     // chains that are looked at together
	mostInspected = 100_000 // entries that one inspection reads, and those of one chain
)

// Inspector finds out what was done to the chains of the audit trail. It remembers how far it found each of them good, and
// reads what came since. It is for one goroutine.
type Inspector struct {
	s    *Service
	good map[string]stand
}

// stand is how a chain was when it was looked at: how many entries it had, by its head and by count, and the hash of the
// last one and of the one before.
type stand struct {
	seq, entries int64
	hash, prev   string
}

// NewInspector returns one that has seen nothing yet.
func (s *Service) NewInspector() *Inspector { return &Inspector{s: s, good: map[string]stand{}} }

// Damage is a flaw of the audit trail that an inspection has found.
type Damage struct {
	Flaw
	App   string // name of the app whose chain it is; "" = the platform's own
	AppID string // "*" = it is about the number of chains
	At    time.Time
}

// Inspect looks at every chain: at its head, at how many entries it has, and at those that have come since. With afresh it
// reads them from the first on. It returns the flaws that nobody has found before; a chain that turns out good from its
// first entry to its last has none any more. Of a trail too long for one inspection the next ones read the rest.
func (i *Inspector) Inspect(ctx context.Context, afresh bool) (found []Damage, err error) {
	if afresh {
		clear(i.good)
	}
	for after, first, read := "", true, 0; read < mostInspected; first = false {
		heads, err := i.heads(ctx, after, first)
		if err != nil {
			return found, err
		}
		for _, h := range heads {
			after = h.chain
			if was, ok := i.good[h.chain]; ok && was.seq == h.seq && was.hash == h.hash && was.entries == h.entries || read >= mostInspected {
				continue
			}
			v, n, err := i.chain(ctx, h)
			if read += n; err != nil {
				return found, err
			}
			some, err := i.s.keepFlaws(ctx, v, n == int(h.entries))
			if found = append(found, some...); err != nil {
				return found, err
			}
		}
		if len(heads) < perInspection {
			break
		}
	}
	v, err := i.number(ctx)
	if err != nil {
		return found, err
	}
	some, err := i.s.keepFlaws(ctx, v, true)
	return append(found, some...), err
}

// counted is a head, and how many entries its chain has.
type counted struct {
	head
	entries int64
}

// heads reads some of the heads behind one.
func (i *Inspector) heads(ctx context.Context, after string, first bool) (heads []counted, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		var h counted
		err := row.Scan(&h.chain, &h.seq, &h.hash, &h.seal, &h.entries)
		heads = append(heads, h)
		return err
	}, `SELECT h.app_id, h.seq, h.hash, h.seal, (SELECT COUNT(*) FROM audit a WHERE a.app_id = h.app_id AND a.seq > 0)
		FROM audit_head h WHERE h.app_id <> '*' AND (h.app_id > $1 OR $2) ORDER BY h.app_id LIMIT $3`, after, first, perInspection)
	if err := i.s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look at the heads of the audit trail: %w", err)
	}
	return heads, nil
}

// chain verifies what came since, or all of a chain that has not as many entries as it should or does not go on as it was,
// such as one that was redacted, and returns how many entries it read.
func (i *Inspector) chain(ctx context.Context, h counted) (out Verdict, read int, err error) {
	from := i.good[h.chain]
	out, read, err = i.since(ctx, h, from)
	if err == nil && len(out.Flaws) > 0 && from != (stand{}) {
		out, read, err = i.since(ctx, h, stand{})
	}
	return out, read, err
}

// since verifies a chain from where it stood. The last entry that was good is read again.
func (i *Inspector) since(ctx context.Context, h counted, from stand) (out Verdict, read int, err error) {
	if h.entries-from.entries != h.seq-from.seq || h.entries != h.seq {
		from = stand{}
	}
	next := stand{seq: h.seq, entries: h.entries, hash: h.hash, prev: from.prev}
	v := Verifier{Report: func(x Verdict) { out = x }, now: &Verdict{AppID: h.chain, Hash: from.prev}, seq: max(from.seq-1, 0)}
	for more := true; more; {
		entries, err := i.s.chained(ctx, h.chain, AuditFilter{}, v.seq)
		if err != nil {
			return out, read, fmt.Errorf("inspect the audit trail of %q: %w", h.chain, err)
		}
		more = len(entries) == perExport
		for j := range entries {
			if entries[j].Seq > h.seq { // it has grown since
				more = false
				break
			}
			next.prev = v.now.Hash
			v.entry(&entries[j])
			read++
		}
	}
	v.head(&Head{AppID: db.ID(h.chain), Entries: h.seq, Hash: h.hash, Sealed: i.s.genuine(h.head)})
	if h.entries > h.seq {
		out.flaw(nil, "there are entries behind its end, which is at %d", h.seq)
	}
	i.good[h.chain] = next
	return out, read, nil
}

// number verifies how many chains there are.
func (i *Inspector) number(ctx context.Context) (Verdict, error) {
	v := Verdict{AppID: allChains}
	h := head{chain: allChains}
	var chains int64
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&chains) }, `SELECT COUNT(*) FROM audit_head WHERE app_id <> '*'`)
	b.Query(func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal, &chains) },
		`SELECT h.seq, h.hash, h.seal, (SELECT COUNT(*) FROM audit_head WHERE app_id <> '*') FROM audit_head h WHERE h.app_id = '*'`)
	if err := i.s.db.Platform().Do(ctx, &b); err != nil {
		return v, fmt.Errorf("count the chains of the audit trail: %w", err)
	}
	switch {
	case h.seal == nil && chains == 0:
	case !i.s.genuine(h):
		v.flaw(nil, "the number of its chains is not as this platform sealed it")
	case h.seq != chains:
		v.flaw(nil, "there are %d chains and should be %d", chains, h.seq)
	}
	return v, nil
}

// keepFlaws keeps the flaws of a chain and returns those that are new. One that was looked at as a whole has no others.
func (s *Service) keepFlaws(ctx context.Context, v Verdict, whole bool) (found []Damage, err error) {
	var b db.Batch
	if whole && len(v.Flaws) == 0 {
		b.Exec(nil, `DELETE FROM audit_flaw WHERE app_id = $1`, v.AppID)
	}
	added := make([]int64, len(v.Flaws))
	for i, f := range v.Flaws {
		b.Exec(&added[i], `INSERT INTO audit_flaw (app_id, seq, flaw, app, entry, found_at) VALUES ($1, $2, $3, $4, $5, stoa_now())
			ON CONFLICT DO NOTHING`, v.AppID, f.Seq, f.Text, v.App, f.ID)
	}
	if b.Empty() {
		return nil, nil
	}
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("keep the flaws of the audit trail: %w", err)
	}
	for i, f := range v.Flaws {
		if added[i] > 0 {
			found = append(found, Damage{Flaw: f, App: v.App, AppID: v.AppID})
		}
	}
	return found, nil
}

// maxDamages bounds how many flaws are told at once.
const maxDamages = 100

// Damages returns what inspections have found out about the chains of an app, by name or id, or about all, and how much it is.
func (s *Service) Damages(ctx context.Context, app string) (found []Damage, total int64, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&total) }, `SELECT COUNT(*) FROM audit_flaw WHERE (CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1)`, app)
	b.Query(func(row db.Row) error {
		var d Damage
		var at int64
		err := row.Scan(&d.AppID, &d.Seq, &d.Text, &d.App, &d.ID, &at)
		d.At = micros(at)
		found = append(found, d)
		return err
	}, `SELECT app_id, seq, flaw, app, entry, found_at FROM audit_flaw WHERE (CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1)
		ORDER BY found_at, app_id, seq, flaw LIMIT $2`, app, maxDamages)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("read the flaws of the audit trail: %w", err)
	}
	return found, total, nil
}
