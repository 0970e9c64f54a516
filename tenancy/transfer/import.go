package transfer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Grants says what becomes of the grants in a file, which are powers over the host.
type Grants string

// An import of an app with grants must choose one of these.
const (
	KeepGrants Grants = "keep"
	DropGrants Grants = "drop"
)

// Import reads an app from in and makes it one of this installation, with its id and suspended. It takes effect as a whole
// or not at all. A file that is not as [Service.Export] wrote it, an app that this installation could not run, and another
// passphrase are [agentsvc.CodeInvalid]; a name, an id or an API key that this installation has are [agentsvc.CodeExists].
func (s *Service) Import(ctx context.Context, actor audit.Actor, passphrase string, grants Grants, in io.Reader) (*Summary, error) {
	if grants != "" && grants != KeepGrants && grants != DropGrants {
		return nil, agentsvc.NewInvalidError("grants", "must be %s or %s", KeepGrants, DropGrants)
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	file, err := s.spool(in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var tables *catalog
	err = s.db.Platform().ReadTx(ctx, func(tx *db.Tx) (err error) {
		tables, err = readCatalog(ctx, tx, s.db.Engine())
		return err
	})
	if err != nil {
		return nil, err
	}
	c := checker{tables: tables, maxRows: s.options.MaxRows, reader: newFileReader(file), rows: map[string]int64{}}
	if err := c.run(ctx, passphrase); err != nil {
		return nil, err
	}
	app, err := s.apps.Moves.CheckImport(ctx, c.importedApp(), grants == DropGrants)
	if err != nil {
		return nil, err
	}
	if len(app.Grants) > 0 && grants == "" {
		return nil, agentsvc.NewInvalidError("grants", "the app has %d powers over the host it comes from (%v): choose keep or drop", len(app.Grants), app.Grants)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	i := importer{service: s, checked: &c, summary: &Summary{App: app, Rows: c.rows, Digest: c.digest, Dropped: map[string]int64{}}, reader: newFileReader(file)}
	if err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error { return i.run(ctx, tx, actor) }); err != nil {
		return nil, explainInsert(err, &app)
	}
	s.apps.Moves.PublishImport(&app)
	if s.options.Imported != nil {
		s.options.Imported(context.WithoutCancel(ctx), app)
	}
	return i.summary, nil
}

// explainInsert names what the transaction found to be in use.
func explainInsert(err error, app *tenancy.App) error {
	if db.IsDuplicate(err) {
		return agentsvc.NewError(agentsvc.CodeExists, "this installation has something that is in the file of the app %s already: its name, one of its API keys or a row of its audit trail", app.Name)
	}
	var known *agentsvc.Error
	if errors.As(err, &known) {
		return err
	}
	return fmt.Errorf("import app %s: %w", app.Name, err)
}

// spool copies in to a temporary file, so that it can be read twice, without a client that holds a transaction open. The
// file has no name from the beginning on: nothing is left after a crash.
func (s *Service) spool(in io.Reader) (*os.File, error) {
	file, err := os.CreateTemp(s.options.Folder, "stoa-import-*")
	if err != nil {
		return nil, fmt.Errorf("store the file while it is imported (TMPDIR names the folder): %w", err)
	}
	if err = os.Remove(file.Name()); err == nil {
		var n int64
		if n, err = io.Copy(file, io.LimitReader(in, s.options.MaxBytes+1)); err == nil && n > s.options.MaxBytes {
			err = agentsvc.NewError(agentsvc.CodeTooLarge, "the file is larger than %d bytes; the operator may permit more (--max-import)", s.options.MaxBytes)
		}
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// importer reads a file for the second time, after it was checked, and inserts its rows.
type importer struct {
	service *Service
	checked *checker
	summary *Summary
	reader  *fileReader
}

// run inserts all rows and completes the import.
func (i *importer) run(ctx context.Context, tx *db.Tx, actor audit.Actor) error {
	if err := i.checkUnknown(ctx, tx); err != nil {
		return err
	}
	for range 2 { // the header, and the first line after it
		if err := i.reader.next(); err != nil {
			return err
		}
	}
	for {
		var line anyLine
		if err := i.reader.decode(&line); err != nil {
			return err
		}
		if line.End != nil {
			break
		}
		t, err := i.checked.tables.find(line.Table).reorder(line.Columns, i.reader.line, false)
		if err != nil {
			return err
		}
		insert := func() error { return i.insertTable(ctx, tx, t) }
		if t.name == auditTable {
			err = i.service.apps.Trail.Adopt(ctx, tx, i.summary.App.ID, insert)
		} else {
			err = insert()
		}
		if err != nil {
			return err
		}
	}
	err := i.service.apps.Moves.RecordImport(ctx, tx, actor, &i.summary.App, map[string]any{
		"rows": i.summary.total(), "digest": i.summary.Digest, "exported_at": i.checked.header.ExportedAt,
	})
	if hook := i.service.options.InTx; err == nil && hook != nil {
		err = hook(ctx, tx, i.summary.App.ID)
	}
	return err
}

// checkUnknown returns an error if any table has rows of the app. Its books and its audit trail outlive an app: one that was
// deleted here cannot come back.
func (i *importer) checkUnknown(ctx context.Context, tx *db.Tx) error {
	for _, t := range i.checked.tables.all {
		found := false
		err := tx.Query(ctx, func(db.Row) error { found = true; return nil }, `SELECT 1 FROM `+quote(t.name)+` WHERE `+quote(t.owner)+` = $1 LIMIT 1`, string(i.checked.header.AppID))
		switch {
		case err != nil:
			return err
		case found && (t.name == auditTable || t.owner != "tenant"):
			return agentsvc.NewError(agentsvc.CodeExists, "this installation has the books or the audit trail of the app with the id %s, which outlive a deletion: import it into another installation", i.checked.header.AppID)
		case found:
			return agentsvc.NewError(agentsvc.CodeExists, "this installation has rows of the app with the id %s: it exists, or its deletion is not complete yet", i.checked.header.AppID)
		}
	}
	return nil
}

// Bounds of one INSERT: its rows, its parameters (SQLite accepts 32,766) and the bytes of its values.
const (
	maxInsertRows   = 200
	maxInsertParams = 4000
	maxInsertBytes  = 1 << 20
)

// statementTimeout bounds one INSERT.
const statementTimeout = 2 * time.Minute

// insertTable inserts the rows of a table and reads the line after them.
func (i *importer) insertTable(ctx context.Context, tx *db.Tx, t *table) error {
	most := min(maxInsertRows, max(1, maxInsertParams/(len(t.columns)+1)))
	full := t.insertSQL(most) // prepared once
	var args []any
	rows, size := 0, 0
	flush := func() error {
		if rows == 0 {
			return nil
		}
		text := full
		if rows < most {
			text = t.insertSQL(rows)
		}
		// The context of the import ends hours later: a database that does not answer must not be waited for so long.
		inTime, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		_, err := tx.Exec(inTime, text, args...)
		args, rows, size = args[:0], 0, 0
		return err
	}
	var values []any
	for {
		if err := i.reader.next(); err != nil {
			return err
		}
		if !i.reader.isRow() {
			return flush()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if values, err = i.reader.row(t, values); err != nil {
			return err
		}
		kept, err := i.adapt(t, values)
		if err != nil {
			return err
		}
		if !kept {
			i.summary.Dropped[t.name]++
			continue
		}
		args = append(append(args, string(i.checked.header.AppID)), values...)
		rows++
		if size += len(i.reader.content); rows == most || size > maxInsertBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// adapt changes a row for this installation. It returns false for one that is of no use here.
func (i *importer) adapt(t *table, values []any) (kept bool, err error) {
	// Owners that the other installation's issuer named are those that this one's names.
	if at := t.index("owner_iss"); at >= 0 && values[at] == i.checked.header.Issuer && i.checked.header.Issuer != i.service.options.Issuer {
		if sealedColumns[t.name] != "" {
			return false, nil // encrypted for the owner by its full name
		}
		values[at] = i.service.options.Issuer
	}
	switch t.name {
	case appTable:
		grants, err := i.summary.App.EncodeGrants()
		if err != nil {
			return false, err
		}
		values[t.index("grants")] = grants
	case invoiceTable:
		if at := t.index(numberColumn); at >= 0 {
			values[at] = foreignNumber(i.checked.header.AppID, values[at])
		}
	}
	return true, reseal(t, values, string(i.checked.header.AppID), i.service.keys, i.checked.keys.ring, i.service.keys.CurrentKeyID())
}

// numberColumn is the column of an invoice's number, maxForeignNumber the largest that is imported.
const (
	numberColumn     = "number"
	maxForeignNumber = 1<<31 - 1
)

// foreignNumber returns the number under which an invoice of another installation is stored: negative, so that it is none of
// this installation's, whose numbers have no gaps; in the order of the numbers that were given, which the documents have;
// and with 30 bits of the app's id, because no two invoices have the same. One that is negative already was imported before
// and keeps its number.
func foreignNumber(app db.ID, number any) any {
	n, ok := number.(int64)
	if !ok || n < 0 {
		return number
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // never fails
	return -int64(1)<<62 + int64(h.Sum32()>>2)<<31 + n
}
