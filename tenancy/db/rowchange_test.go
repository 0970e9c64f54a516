package db_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

var (
	renameChange = db.NewRowChange("task", "tenant, id", "tenant TEXT, id TEXT, next BIGINT, was BIGINT", "agent = 'shared', seq = v.next", "task.seq = v.was")
	readChange   = db.NewReturningChange("task", "tenant, id", "tenant TEXT, id TEXT, context TEXT", "context_id = v.context", "task.seq = 9")
)

// newMoveBatch returns a batch that advances a task from sequence 1, with a shared form.
func newMoveBatch(tenant, id string, to int64, n, reported *int64) *db.Batch {
	b := &db.Batch{Key: id, Shared: &db.Batch{}}
	b.Exec(n, "UPDATE task SET agent = 'alone', seq = $3 WHERE tenant = $1 AND id = $2 AND seq = 1", tenant, id, to)
	b.Shared.ChangeRow(n, renameChange, []any{tenant, id, to, int64(1)})
	b.Shared.ChangeRow(reported, readChange, []any{tenant, id, "c"})
	return b
}

// TestShared writes groups on PostgreSQL that use shared statements if enough batches of their tenant have them, and
// own statements if one batch meets an unexpected row. In both cases each caller gets its own outcome.
func TestShared(t *testing.T) {
	t.Parallel()
	note := func(b *db.Batch, id string) *db.Batch {
		var other db.Batch
		other.InsertRows(newTaskTarget, []any{"acme", id, "noted", int64(1)})
		b.Append(&other)
		return b
	}
	for name, c := range map[string]struct {
		seqs       []int64 // sequence of each task, by number
		more       func(b *db.Batch, i int) *db.Batch
		want       string // which batch's form wrote each task
		wantCounts string // the count that each caller got, with shared statements
	}{
		"in company":           {seqs: []int64{1, 1, 1, 1}, want: "shared shared shared shared", wantCounts: "0 1 0 1"},
		"too few":              {seqs: []int64{1, 1}, want: "alone alone", wantCounts: "0 0"},
		"one has moved on":     {seqs: []int64{1, 1, 7, 1}, want: "alone alone first alone", wantCounts: "0 0 0 0"},
		"one is not there":     {seqs: []int64{1, 0, 1, 1}, want: "alone  alone alone", wantCounts: "0 0 0 0"},
		"one without a share":  {seqs: []int64{1, 1, 1, 1}, more: withoutShared(0), want: "alone shared shared shared", wantCounts: "0 1 0 1"},
		"what is new is added": {seqs: []int64{1, 1, 1}, more: func(b *db.Batch, i int) *db.Batch { return note(b, fmt.Sprint("new", i)) }, want: "shared shared shared", wantCounts: "0 1 0"},
		"what is there stays":  {seqs: []int64{1, 1, 1}, more: func(b *db.Batch, i int) *db.Batch { return note(b, fmt.Sprint(i)) }, want: "alone alone alone", wantCounts: "0 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				var first db.Batch
				for i, seq := range c.seqs {
					if seq > 0 {
						first.InsertRows(taskTarget, []any{"acme", fmt.Sprint(i), "first", seq})
					}
				}
				if err := d.Tenant("acme").Do(t.Context(), &first); err != nil {
					t.Fatal(err)
				}
				ns, counts := make([]int64, len(c.seqs)), make([]int64, len(c.seqs))
				batches := make([]*db.Batch, len(c.seqs))
				for i := range c.seqs {
					batches[i] = newMoveBatch("acme", fmt.Sprint(i), []int64{5, 9}[i%2], &ns[i], &counts[i])
					if i != 1 {
						batches[i].Exec(nil, "SELECT 1") // each form has a further statement
					}
					if c.more != nil {
						batches[i] = c.more(batches[i], i)
					}
				}
				writeInOneGroup(t, d, "acme", batches)
				want, reported := c.want, c.wantCounts
				if d.Engine() == db.SQLite {
					want, reported = strings.ReplaceAll(want, "shared", "alone"), strings.ReplaceAll(reported, "1", "0")
				}
				var wrote []string
				for i, seq := range c.seqs {
					wrote = append(wrote, readAgent(t, d, fmt.Sprint(i)))
					if n := ns[i]; (n == 1) != (seq == 1) {
						t.Errorf("batch %d touched %d rows of a task at %d", i, n, seq)
					}
				}
				if diff := cmp.Diff(want, strings.Join(wrote, " ")); diff != "" {
					t.Errorf("who wrote what\n%s", diff)
				}
				if got := strings.Trim(fmt.Sprint(counts), "[]"); got != reported {
					t.Errorf("got %s, want %s", got, reported)
				}
			})
		})
	}
}

// TestSharedBackoff checks that after a failed shared statement the tenant's batches use their own statements for some
// time, and other tenants' do not.
func TestSharedBackoff(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	d.SetSharedBackoff(time.Hour)
	from := 0
	group := func(tenant db.ID, seqs []int64) (wrote string) {
		t.Helper()
		var first db.Batch
		batches := make([]*db.Batch, len(seqs))
		var ignored int64
		for i, seq := range seqs {
			id := fmt.Sprint(tenant, from+i)
			first.InsertRows(taskTarget, []any{string(tenant), id, "first", seq})
			batches[i] = newMoveBatch(string(tenant), id, 5, &ignored, &ignored)
		}
		if err := d.Tenant(tenant).Do(t.Context(), &first); err != nil {
			t.Fatal(err)
		}
		writeInOneGroup(t, d, tenant, batches)
		return readAgent(t, d, fmt.Sprint(tenant, from))
	}
	for _, step := range []struct {
		tenant  db.ID
		seqs    []int64
		backoff time.Duration
		want    string
	}{
		{"acme", []int64{1, 1, 1}, time.Hour, "shared"},
		{"acme", []int64{1, 1, 7}, time.Hour, "alone"},
		{"acme", []int64{1, 1, 1}, time.Hour, "alone"},
		{"other", []int64{1, 1, 1}, time.Hour, "shared"},
		{"acme", []int64{1, 1, 1}, 0, "shared"},
		{"acme", []int64{1, 1, 1}, time.Hour, "shared"},
	} {
		d.SetSharedBackoff(step.backoff)
		from += 10
		if got := group(step.tenant, step.seqs); got != step.want {
			t.Errorf("group %d of %s was written %s, want %s", from/10, step.tenant, got, step.want)
		}
	}
}

// withoutShared removes the shared form of the i-th batch.
func withoutShared(which int) func(b *db.Batch, i int) *db.Batch {
	return func(b *db.Batch, i int) *db.Batch {
		if i == which {
			b.Shared = nil
		}
		return b
	}
}

func readAgent(t *testing.T, d *db.DB, id string) (agent string) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&agent) }, "SELECT agent FROM task WHERE tenant <> 'holding' AND id = $1", id)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return agent
}

// writeInOneGroup writes the batches of a tenant in one commit.
func writeInOneGroup(t *testing.T, d *db.DB, tenant db.ID, batches []*db.Batch) {
	t.Helper()
	release := blockWrites(t, d)
	var all sync.WaitGroup
	write := func(tenant db.ID, b *db.Batch) {
		all.Go(func() {
			if err := d.Tenant(tenant).Write(context.Background(), b); err != nil {
				t.Error(err)
			}
		})
	}
	under := map[db.Engine]int{db.Postgres: 2, db.SQLite: 1}[d.Engine()]
	for i := range under { // one for each writer, so that the others are queued together
		var b db.Batch
		insertTask(&b, "holding", fmt.Sprint(time.Now().UnixNano()))
		write("holding", &b)
		waitForWrites(t, d, 0, i+1)
	}
	for _, b := range batches {
		write(tenant, b)
	}
	waitForWrites(t, d, len(batches), under)
	release()
	all.Wait()
}

// TestSharedPlan checks that a change looks rows up by their keys, also if it was planned when the table was empty.
func TestSharedPlan(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), dbtest.NewPostgresURL(t), db.Options{MaxConns: 1}) // plans belong to a session
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	const many, groups, each = 3000, 5, 10
	var manyRows db.Batch
	for i := range groups * each {
		insertTask(&manyRows, "acme", fmt.Sprint("t", i))
	}
	move := func(of int) {
		t.Helper()
		var all sync.WaitGroup
		for i := range each {
			all.Go(func() {
				var n, reported int64
				err := d.Tenant("acme").Write(context.Background(), newMoveBatch("acme", fmt.Sprint("t", of*each+i), 9, &n, &reported))
				if err != nil || n != 1 {
					t.Errorf("moved %d: %v", n, err)
				}
			})
		}
		all.Wait()
	}
	if err := d.Tenant("acme").Do(t.Context(), &manyRows); err != nil {
		t.Fatal(err)
	}
	for g := range groups - 1 {
		move(g)
	}
	var more db.Batch
	more.Exec(nil, `INSERT INTO task SELECT tenant, id || '-' || n, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at, opens_context
		FROM task, generate_series(1, $1) AS n WHERE id = 't0'`, many)
	if err := d.Tenant("acme").Do(t.Context(), &more); err != nil {
		t.Fatal(err)
	}
	planStats := func() (shared, rows int64) {
		t.Helper()
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(nil) }, "SELECT CAST(pg_stat_force_next_flush() AS TEXT)")
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		b = db.Batch{}
		b.Query(func(r db.Row) error { return r.Scan(&rows) }, "SELECT CAST(SUM(idx_tup_read) AS BIGINT) FROM pg_stat_user_indexes WHERE relname = 'task'")
		b.Query(func(r db.Row) error { return r.Scan(&shared) }, "SELECT COALESCE(MAX(generic_plans), 0) FROM pg_prepared_statements WHERE statement LIKE '%seq = v.next%'")
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return shared, rows
	}
	sharedBefore, before := planStats()
	move(groups - 1)
	shared, after := planStats()
	if sharedBefore == 0 || shared == sharedBefore {
		t.Errorf("statements were shared %d times before and %d after", sharedBefore, shared)
	}
	if after-before > many/2 {
		t.Errorf("to change %d rows it read %d", each, after-before)
	}
}
