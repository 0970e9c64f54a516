package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const taskColumns = `tenant TEXT, id TEXT, agent TEXT, seq BIGINT, context_id = 'c', owner_iss = 'i', owner_sub = 's', state = 'working', epoch = 1,
	status_seq = 1, turn = 1, created_at = stoa_now(), updated_at = stoa_now()`

var (
	taskTarget    = db.NewInsertTarget("task", taskColumns, "")
	newTaskTarget = db.NewInsertTarget("task", taskColumns, "tenant, id") // skips rows that exist
	noteTarget    = db.NewInsertTarget("note", "tenant TEXT, text TEXT", "")
)

// TestInsert inserts concurrently, in groups and alone: each caller gets its own outcome, and every row is stored once
// with its values.
func TestInsert(t *testing.T) {
	t.Parallel()
	insertConcurrently := func(t *testing.T, d *db.DB) {
		const writers, odd = 200, `it's {"a", NULL}`
		var want []string
		var wg sync.WaitGroup
		for i := range writers {
			tenant := fmt.Sprint("t", i%3)
			one, two := fmt.Sprint(i, "a"), fmt.Sprint(i, "b")
			row := func(id string) []any { return []any{tenant, id, odd + id, int64(i)} }
			var b db.Batch
			switch i % 5 {
			case 0:
				b.InsertRows(taskTarget, row(one), row(two))
			case 1: // the row exists and stays
				b.InsertRows(taskTarget, row(one))
				b.InsertRows(newTaskTarget, row(one), row(two))
			case 2: // the second row is a duplicate, so the batch fails
				b.InsertRows(taskTarget, row(one))
				b.InsertRows(taskTarget, row(one))
			case 3: // another tenant's
				b.InsertRows(taskTarget, row(one), []any{"t9", two, odd + two, int64(i)})
			case 4:
				b.InsertRows(taskTarget)
				b.InsertRows(newTaskTarget, row(one), row(two), row(two))
			}
			refused := i%5 == 2 || i%5 == 3 && d.Engine() == db.Postgres
			if !refused {
				want = append(want, one, two)
			}
			wg.Go(func() {
				if err := d.Tenant(db.ID(tenant)).Write(context.Background(), &b); (err != nil) != refused {
					t.Errorf("write %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		var got []string
		var b db.Batch
		b.Query(func(r db.Row) error {
			var id, agent string
			var seq int64
			err := r.Scan(&id, &agent, &seq)
			got = append(got, id)
			if agent != odd+id || !strings.HasPrefix(id, fmt.Sprint(seq)) {
				t.Errorf("task %s has the agent %s and the sequence %d", id, agent, seq)
			}
			return err
		}, "SELECT id, agent, seq FROM task ORDER BY id")
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tasks\n%s", diff)
		}
	}
	dbtest.ForEachEngine(t, insertConcurrently)
	// Behind a pooler of transactions (docs/operations.md) arguments are sent as text.
	t.Run("postgres without prepared statements", func(t *testing.T) {
		t.Parallel()
		insertConcurrently(t, dbtest.Open(t, dbtest.NewPostgresURL(t)+"&default_query_exec_mode=exec"))
	})
}

// TestInsertInTx inserts rows with bytes in a transaction, which is undone as a whole.
func TestInsertInTx(t *testing.T) {
	t.Parallel()
	keyTarget := db.NewInsertTarget("signing_key", "generation BIGINT, id TEXT, seed BYTEA, master = '', signs_from = 0, created_at = 0", "")
	insertBytes := func(t *testing.T, d *db.DB) {
		var rows [][]any
		want := map[string]string{}
		for i, seed := range []string{"", "\x00\xff", `\x41{"NULL",}`, strings.Repeat("\x00\x01long", 10_000)} {
			id := fmt.Sprint("key", i)
			rows = append(rows, []any{int64(i), id, []byte(seed)})
			want[id] = seed
		}
		insert := func(rows ...[]any) error {
			return d.Platform().RunTx(t.Context(), func(tx *db.Tx) error { return tx.InsertRows(t.Context(), keyTarget, rows...) })
		}
		if err := insert(append(slices.Clone(rows), rows[0])...); !db.IsDuplicate(err) {
			t.Errorf("a duplicate: %v", err)
		}
		if err := errors.Join(insert(rows...), insert()); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		var b db.Batch
		b.Query(func(r db.Row) error {
			var id string
			var seed []byte
			err := r.Scan(&id, &seed)
			got[id] = string(seed)
			return err
		}, `SELECT id, seed FROM signing_key`)
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	dbtest.ForEachEngine(t, insertBytes)
	t.Run("postgres without prepared statements", func(t *testing.T) {
		t.Parallel()
		insertBytes(t, dbtest.Open(t, dbtest.NewPostgresURL(t)+"&default_query_exec_mode=exec"))
	})
}

// TestInsertTogether checks that the rows of a tenant's batches for one target are one statement, at the place of the
// first, and that few rows are inserted without arrays.
func TestInsertTogether(t *testing.T) {
	t.Parallel()
	var a, b, c, other db.Batch
	row := func(id string) []any { return []any{"t", id, "", int64(1)} }
	a.InsertRows(taskTarget, row("1"), row("2"))
	a.Exec(nil, "UPDATE a")
	b.Exec(nil, "UPDATE b")
	b.InsertRows(taskTarget, row("3"))
	b.InsertRows(noteTarget, []any{"t", "x"})
	c.InsertRows(taskTarget, row("4"), row("6"))
	c.InsertRows(noteTarget, []any{"t", "y"})
	other.InsertRows(taskTarget, row("5"))
	for range 2 { // a second time, as after a failure
		sql, rows := db.PipelineSQL([]db.ID{"t", "t", "t", "u"}, &a, &b, &c, &other)
		want := []string{"enter", taskTarget.ManySQL(), "UPDATE a", "UPDATE b", noteTarget.ValuesSQL(2), "enter", taskTarget.ValuesSQL(1)}
		if diff := cmp.Diff(want, sql); diff != "" {
			t.Errorf("statements\n%s", diff)
		}
		if diff := cmp.Diff([]int{0, 5, 0, 0, 2, 0, 1}, rows); diff != "" {
			t.Errorf("rows\n%s", diff)
		}
	}
}

// TestInsertMistake checks that a row that does not fit panics in its caller and not in the group.
func TestInsertMistake(t *testing.T) {
	t.Parallel()
	for _, row := range [][]any{{"t", "1", ""}, {"t", "1", "", 1}, {"t", int64(1), "", int64(1)}, {"t", "1", nil, int64(1)}, {"t", "1", "", int64(1), "more"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v is taken for a row", row)
				}
			}()
			var b db.Batch
			b.InsertRows(taskTarget, row)
		}()
	}
}
