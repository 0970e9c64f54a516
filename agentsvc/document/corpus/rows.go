package corpus

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// rows is what the parts of a [Store] share. Its handle reaches the tenant's rows only; the statements name the tenant as
// well, which SQLite needs.
type rows struct {
	h      *db.Handle
	tenant string
	limits Limits
}

// runTx runs f in a transaction and adds to its errors what was being done.
func (r rows) runTx(ctx context.Context, what string, f func(t *tx) error) error {
	err := r.h.RunTx(ctx, func(inner *db.Tx) error { return f(&tx{Tx: inner, rows: r, deletable: maxDeletedChunks}) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// runTimedTx is runTx, and returns how long others could not write because of the transaction: without the time for which it waited for
// them, and with the commit, in which SQLite changes its full-text index.
func (r rows) runTimedTx(ctx context.Context, what string, f func(t *tx) error) (time.Duration, error) {
	var began time.Time
	err := r.runTx(ctx, what, func(t *tx) error {
		began = time.Now()
		return f(t)
	})
	return time.Since(began), err
}

// read executes one query outside of a transaction.
func (r rows) read(ctx context.Context, what string, read func(db.Row) error, sql string, args ...any) error {
	var b db.Batch
	b.Query(read, sql, args...)
	if err := r.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// inList returns the condition that a column is one of the values in the parameter, such as "$3", which is a JSON array of
// texts. Statements with it have one text for any number of values, since the engines keep the statements that they have
// prepared. On PostgreSQL it is a condition of an index scan and never a join.
func (r rows) inList(column, parameter string) string {
	if r.h.Engine() == db.Postgres {
		return column + ` = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(CAST(` + parameter + ` AS TEXT) AS jsonb))))`
	}
	return column + ` IN (SELECT value FROM json_each(` + parameter + `))`
}

// lockRow returns the clause with which a SELECT locks its rows. SQLite has one writer and needs no locks.
func (r rows) lockRow() string {
	if r.h.Engine() == db.Postgres {
		return ` FOR UPDATE`
	}
	return ``
}

// indexedBy names the index that a SELECT reads a table by. Without statistics SQLite prefers the primary key to an index of
// few rows that begins with the same columns; PostgreSQL knows its size.
func (r rows) indexedBy(index string) string {
	if r.h.Engine() == db.Postgres {
		return ``
	}
	return ` INDEXED BY ` + index
}

// encodeJSON returns v, which has strings only, as JSON.
func encodeJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // not possible for strings
	}
	return string(text)
}

// newRevision returns a revision that no other document has.
func newRevision() int64 {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	return int64(binary.LittleEndian.Uint64(raw[:])>>1) | 1
}

// fromMicros returns a time of the database, the zero time for 0.
func fromMicros(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at).UTC()
}

// generationSQL is the live generation of store $2. A store that is being removed has none.
const generationSQL = `(SELECT s.generation FROM document_store s WHERE s.tenant = $1 AND s.store = $2 AND s.state = '')`

// readableSQL returns the condition that document d may be read by the reader whose arguments, those of [readerArgs], begin
// at parameter first.
func (r rows) readableSQL(first int) string {
	return fmt.Sprintf(`(CAST($%d AS BOOLEAN) OR d.access_open OR EXISTS (SELECT 1 FROM document_reader x
		WHERE x.tenant = d.tenant AND x.store = d.store AND x.id = d.id
			AND (x.kind = 'subject' AND x.name = $%d OR x.kind = 'user' AND x.name = $%d OR x.kind = 'role' AND %s)))`,
		first, first+1, first+2, r.inList("x.name", fmt.Sprintf("$%d", first+3)))
}

// readerArgs returns the arguments of readableSQL. Entries of an access list are never empty, so an anonymous caller has none.
func readerArgs(reader document.Reader) []any {
	roles := reader.Roles
	if roles == nil {
		roles = []string{}
	}
	return []any{reader.All, reader.Owner.Subject, reader.Owner.Issuer + " " + reader.Owner.Subject, encodeJSON(roles)}
}

// tx is a transaction over a tenant's rows.
type tx struct {
	*db.Tx
	rows
	// deletable is how many chunks the transaction may still delete, see hideRevisions.
	deletable int64
}

// lockTenant makes the transactions that add documents of a tenant follow each other, so that no two of them together exceed
// a limit or create the same document.
func (t *tx) lockTenant(ctx context.Context) error {
	if t.h.Engine() != db.Postgres {
		return nil
	}
	_, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock(7241, hashtext($1))`, t.tenant)
	return err
}

// lockPass renews the lease of a pass and locks its row until the end of the transaction, so that no other process can claim
// it meanwhile. It returns [ErrPassLost] if one has.
func (t *tx) lockPass(ctx context.Context, p Pass) error {
	n, err := t.Exec(ctx, `UPDATE index_pass SET due_at = stoa_now() + $5 WHERE tenant = $1 AND store = $2 AND epoch = $3 AND holder = $4`,
		t.tenant, p.Store, p.Epoch, p.Holder, p.Lease.Microseconds())
	if err == nil && (n == 0 || string(p.Tenant) != t.tenant) {
		return ErrPassLost
	}
	return err
}

// requestPass makes the pass of a store due.
func (t *tx) requestPass(ctx context.Context, store string) error {
	_, err := t.Exec(ctx, requestPassSQL, t.tenant, store)
	return err
}

// requestPassSQL makes a pass due. One that is held keeps its lease, and is due again when it is released.
const requestPassSQL = `UPDATE index_pass SET requested = TRUE, due_at = CASE WHEN holder = '' AND due_at > stoa_now() THEN stoa_now() ELSE due_at END
	WHERE tenant = $1 AND store = $2`

// deleteDocument deletes a document, whose row the transaction has locked.
func (t *tx) deleteDocument(ctx context.Context, store, id string) error {
	small, err := t.of(store).prepareHiding(ctx, id) // first, since it may lock the pass
	if err != nil {
		return err
	}
	for _, table := range []string{"document", "document_reader", "document_body"} {
		if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1 AND store = $2 AND id = $3`, t.tenant, store, id); err != nil {
			return err
		}
	}
	return t.of(store).deleteLive(ctx, id, small)
}

// lockDocument reads and locks a document's revision; found is false if it does not exist.
func (t *tx) lockDocument(ctx context.Context, store, id string) (revision int64, found bool, err error) {
	err = t.Query(ctx, func(r db.Row) error {
		found = true
		return r.Scan(&revision)
	}, `SELECT revision FROM document WHERE tenant = $1 AND store = $2 AND id = $3`+t.lockRow(), t.tenant, store, id)
	return revision, found, err
}

// newLimitError returns the error of a write that would exceed a limit. name is the limit's.
func newLimitError(name, format string, args ...any) error {
	return agentsvc.NewError(agentsvc.CodeExhausted, "limit %s: %s", name, fmt.Sprintf(format, args...))
}
