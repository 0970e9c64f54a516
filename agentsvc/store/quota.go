package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// QuotaOptions say how much each tenant may store in a database, in bytes. One of Each and Shared is set.
type QuotaOptions struct {
	Each   int64 // of each tenant
	Shared int64 // of all together, of which a tenant may store as much as it leaves free
	Advice string
	Log    *slog.Logger
}

// Quota bounds what tenants store in a database. It counts what this process writes, adds that to what it has measured, and
// measures again before it could be wrong by much: a write costs no statement more. What other processes have written
// since the last measurement it does not know.
type Quota struct {
	d *db.DB
	o QuotaOptions

	mu      sync.Mutex
	tenants map[db.ID]*stored
	total   int64 // of all in tenants
	refused int64 // writes, since the process began
	due     chan struct{}
}

// stored is what a tenant stores. Quota.mu guards it.
type stored struct {
	measured int64
	added    int64     // by this process, since the measurement began
	refused  int64     // writes, since the measurement
	known    bool      // it was measured
	at       time.Time // when it was measured or first written to
	next     time.Time // when it may be measured again
}

func (t *stored) bytes() int64 { return t.measured + t.added }

// Of measuring. It reads all keys of a tenant's rows, for which it may take a hundredth of the time.
const (
	measureShare   = 100
	measurePause   = 10 * time.Second // at least, between two measurements of a tenant
	measureRefused = time.Minute      // between two of a tenant that is refused: something may have been deleted
	measureTime    = time.Minute      // the longest that one may take
	measureParts   = 16               // a tenant is measured again when it has written such a part of what was free
	firstParts     = 1024             // and first when it has written such a part of what it may store: most never do
	quotaIdle      = time.Hour        // after which a tenant that does not write is forgotten
)

// reserveParts is the part of its bound that a tenant may store beyond it for what was begun: runs at work end rather than fail.
const reserveParts = 8

// maxEnd is the size, in bytes, up to which what ends something is never refused.
const maxEnd = 64 << 10

// NewQuota returns the bound of what tenants store in d, which has to be told of it.
func NewQuota(d *db.DB, o QuotaOptions) *Quota {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Quota{d: d, o: o, tenants: map[db.ID]*stored{}, due: make(chan struct{}, 1)}
}

// Admit implements [db.Quota].
func (q *Quota) Admit(tenant db.ID, bytes int64, what db.Storing) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenants[tenant]
	if t == nil {
		t = &stored{at: time.Now()}
		q.tenants[tenant] = t
	}
	most := q.most()
	if what == db.StoresMore || what == db.StoresEnd {
		most += most / reserveParts
	}
	if t.bytes()+bytes > most && (what != db.StoresEnd || bytes > maxEnd) {
		t.refused++
		q.refused++
		q.wake()
		return &agentsvc.StoredError{Bytes: t.bytes(), Most: q.most(), Advice: q.o.Advice, Retry: measureRefused}
	}
	t.added += bytes
	q.total += bytes
	if q.isDue(t) {
		q.wake()
	}
	return nil
}

// most is how much a tenant may store. q.mu is held.
func (q *Quota) most() int64 {
	if q.o.Shared > 0 {
		return max(q.o.Shared-q.total, 0)
	}
	return q.o.Each
}

// isDue reports whether a tenant is to be measured, now or when it may be. q.mu is held.
func (q *Quota) isDue(t *stored) bool {
	if !t.known {
		return t.added > q.most()/firstParts
	}
	return t.added > max(q.most()-t.measured, 0)/measureParts
}

// wake has due tenants measured. q.mu is held.
func (q *Quota) wake() {
	select {
	case q.due <- struct{}{}:
	default:
	}
}

// Run measures tenants when that is due, until ctx ends.
func (q *Quota) Run(ctx context.Context) error {
	tick := time.NewTicker(measurePause)
	defer tick.Stop()
	for {
		select {
		case <-q.due:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, id := range q.toMeasure(time.Now()) {
			if err := q.Measure(ctx, id); err != nil && ctx.Err() == nil {
				q.o.Log.Warn("what an app stores could not be measured", "tenant", id, "error", err)
			}
		}
	}
}

// toMeasure returns the tenants that are to be measured now, and forgets those that have not written for long.
func (q *Quota) toMeasure(now time.Time) (ids []db.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, t := range q.tenants {
		switch {
		case now.Before(t.next):
		case q.isDue(t), t.refused > 0 && now.Sub(t.at) >= measureRefused:
			ids = append(ids, id)
		case t.added == 0 && now.Sub(t.at) >= quotaIdle:
			q.forget(id)
		case now.Sub(t.at) >= quotaIdle: // others may have deleted or written
			ids = append(ids, id)
		}
	}
	return ids
}

// Measure finds out how much a tenant stores.
func (q *Quota) Measure(ctx context.Context, tenant db.ID) error {
	q.mu.Lock()
	t := q.tenants[tenant]
	if t == nil {
		t = &stored{}
		q.tenants[tenant] = t
	}
	before := t.added
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	began := time.Now()
	n, err := New(q.d, tenant).sum(ctx, kept, rowSize)
	took := time.Since(began)
	q.mu.Lock()
	defer q.mu.Unlock()
	t.next = time.Now().Add(max(measurePause, measureShare*took))
	if err != nil || q.tenants[tenant] != t {
		return err
	}
	if t.refused > 0 {
		q.o.Log.Warn("an app stores as much as it may, and was refused to store more", "tenant", tenant, "bytes", n, "most", q.most(), "refused", t.refused)
	}
	q.total += n - t.measured - before
	t.measured, t.added, t.refused, t.known, t.at = n, t.added-before, 0, true, began
	return nil
}

// Forget forgets a tenant, whose rows are gone.
func (q *Quota) Forget(tenant db.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(tenant)
}

func (q *Quota) forget(tenant db.ID) {
	if t := q.tenants[tenant]; t != nil {
		q.total -= t.bytes()
		delete(q.tenants, tenant)
	}
}

// Scarce reports whether a tenant has less than a quarter of what it may store left.
func (q *Quota) Scarce(tenant db.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenants[tenant]
	return t != nil && t.bytes() > q.most()/4*3
}

// Stored returns how many bytes each tenant stores that has written in this process of late, as far as it knows.
func (q *Quota) Stored() map[db.ID]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[db.ID]int64, len(q.tenants))
	for id, t := range maps.All(q.tenants) {
		all[id] = t.bytes()
	}
	return all
}

// Refused returns how many writes were refused.
func (q *Quota) Refused() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// rowSize is what a row takes beside its texts, its keys and indexes included, in bytes.
const rowSize = 256

// kept are the tables that count for a quota, and the size of a row.
var kept = append([]sizedTable{
	{"task", "0"}, {"run", "0"}, {"sent", "0"}, {"receiver", "octet_length(value)"},
}, weighed...)

// sum adds up the sizes of the tenant's rows in tables, and row for each of them. It reads all of the tenant's rows, though not
// their long texts.
func (s *Store) sum(ctx context.Context, tables []sizedTable, row int64) (total int64, err error) {
	parts := make([]string, len(tables))
	for i, k := range tables {
		parts[i] = `SELECT COALESCE(SUM(` + k.size + `), 0) + COUNT(*) * CAST($2 AS BIGINT) AS n FROM ` + k.table + ` WHERE tenant = $1`
	}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&total) }, `SELECT CAST(SUM(n) AS BIGINT) FROM (`+strings.Join(parts, " UNION ALL ")+`) AS sums`, s.tenant, row)
	if err := s.h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("add up the bytes that are stored: %w", err)
	}
	return total, nil
}
