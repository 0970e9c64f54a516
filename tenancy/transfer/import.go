package transfer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
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
			err = agentsvc.NewError(agentsvc.CodeTooLarge, "the file is larger than %d bytes", s.options.MaxBytes)
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

// maxKept bounds the bytes of configuration and secrets that the first reading keeps.
const maxKept = 16 << 20

// checker reads a file for the first time.
type checker struct {
	tables  *catalog
	maxRows int64
	reader  *fileReader
	rows    map[string]int64

	// What was read: the header, the keys that open the file, the row of the app, the configuration of each revision and the
	// secrets as they are encrypted, the digest.
	header  header
	keys    *fileKeys
	app     map[string]any
	configs map[int64][]byte
	secrets map[string][]byte
	kept    int
	digest  string
}

// run reads the file to its end. It touches no database.
func (c *checker) run(ctx context.Context, passphrase string) error {
	r := c.reader
	if err := r.next(); err != nil {
		return err
	}
	if err := c.readHeader(passphrase); err != nil {
		return err
	}
	mac := hmac.New(sha256.New, c.keys.mac)
	c.configs, c.secrets = map[int64][]byte{}, map[string][]byte{}
	var current *table
	var values []any
	total := int64(0)
	for {
		mac.Write(r.content) // never fails
		if err := r.next(); err != nil {
			return err
		}
		if !r.isRow() {
			var line anyLine
			if err := r.decode(&line); err != nil {
				return err
			}
			if line.End != nil {
				return c.checkEnd(line.End, total, mac.Sum(nil))
			}
			var err error
			if current, err = c.beginTable(line.tableLine); err != nil {
				return err
			}
			continue
		}
		if current == nil {
			return newFileError(r.line, "is a row before the first table")
		}
		if total++; total > c.maxRows {
			return agentsvc.NewError(agentsvc.CodeTooLarge, "the file has more than %d rows", c.maxRows)
		}
		var err error
		if values, err = r.row(current, values); err != nil {
			return err
		}
		c.rows[current.name]++
		if err := c.checkTexts(current, values); err != nil {
			return err
		}
		if err := c.keep(current, values); err != nil {
			return err
		}
		if total%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// readHeader reads the first line and derives the keys.
func (c *checker) readHeader(passphrase string) error {
	h := &c.header
	// A later format may have members that this version does not know.
	if len(c.reader.content) > maxObjectLine || json.Unmarshal(c.reader.content, h) != nil || h.Format < 1 {
		return agentsvc.NewInvalidError("file", "is not an exported app: its first line has no stoa_app")
	}
	switch {
	case h.Format > formatVersion:
		return newVersionError("format", int64(h.Format), formatVersion)
	case h.Schema > c.tables.schema:
		return newVersionError("schema", int64(h.Schema), int64(c.tables.schema))
	case len(h.Salt) != saltSize:
		return newFileError(1, "has no salt of %d bytes", saltSize)
	}
	var err error
	if c.keys, err = deriveKeys(passphrase, h.Salt); err != nil {
		return err
	}
	if !hmac.Equal(c.keys.check, h.Check) {
		return agentsvc.NewInvalidError("passphrase", "is not that of the file")
	}
	return nil
}

func newVersionError(what string, got, known int64) error {
	return agentsvc.NewInvalidError("file", "has version %d of the %s, this installation knows up to %d: upgrade this installation first", got, what, known)
}

// beginTable returns the table of a line with the columns in the order of the file. A table may begin once.
func (c *checker) beginTable(line tableLine) (*table, error) {
	at := c.reader.line
	t := c.tables.find(line.Table)
	if t == nil {
		return nil, newFileError(at, "table %.63q is not one of an exported app", line.Table)
	}
	if _, again := c.rows[t.name]; again {
		return nil, newFileError(at, "table %s begins a second time", t.name)
	}
	c.rows[t.name] = 0
	return t.reorder(line.Columns, at, c.header.Schema == c.tables.schema)
}

// reorder returns a table with the given columns. A file of an older schema may lack some, which then have their defaults.
func (t *table) reorder(names []string, at int64, complete bool) (*table, error) {
	in := &table{name: t.name, owner: t.owner}
	for _, name := range names {
		i := t.index(name)
		if i < 0 || in.index(name) >= 0 {
			return nil, newFileError(at, "table %s has no column %.63q, or has it twice", t.name, name)
		}
		in.columns = append(in.columns, t.columns[i])
	}
	if complete && len(in.columns) < len(t.columns) {
		return nil, newFileError(at, "table %s lacks columns", t.name)
	}
	return in, nil
}

// checkTexts returns an error for a value that this database cannot store.
func (c *checker) checkTexts(t *table, values []any) error {
	for i, v := range values {
		if text, ok := v.(string); ok && c.tables.engine == db.Postgres && strings.ContainsRune(text, 0) {
			return newFileError(c.reader.line, "column %s of table %s has a text with a zero byte, which PostgreSQL cannot store: import the app into SQLite", t.columns[i].name, t.name)
		}
		if n, ok := v.(int64); ok && t.name == invoiceTable && t.columns[i].name == numberColumn && n > maxForeignNumber {
			return newFileError(c.reader.line, "an invoice has the number %d, %d is the largest", n, maxForeignNumber)
		}
	}
	return nil
}

// keep keeps what the check of the app needs.
func (c *checker) keep(t *table, values []any) error {
	get := func(column string) any {
		if i := t.index(column); i >= 0 {
			return values[i]
		}
		return nil
	}
	switch t.name {
	case appTable:
		if c.app != nil {
			return newFileError(c.reader.line, "is a second row of table app")
		}
		c.app = map[string]any{}
		for i, column := range t.columns {
			c.app[column.name] = values[i]
		}
	case revisionTable:
		revision, _ := get("revision").(int64)
		config, _ := get("config").([]byte)
		// The row of the app comes first, so that only the current configuration is kept.
		if c.app != nil && revision == c.number("revision") {
			c.kept += len(config)
			c.configs[revision] = config
		}
	case secretTable:
		name, _ := get("name").(string)
		value, _ := get("value").([]byte)
		c.kept += len(name) + len(value)
		c.secrets[name] = value
	}
	if c.kept > maxKept || len(c.secrets) > tenancy.MaxSecrets {
		return newFileError(c.reader.line, "the configuration and the secrets of the app are too large")
	}
	return nil
}

func (c *checker) number(column string) int64 {
	n, _ := c.app[column].(int64)
	return n
}

func (c *checker) text(column string) string {
	text, _ := c.app[column].(string)
	return text
}

// importedApp returns what was read of the app.
func (c *checker) importedApp() tenancy.ImportedApp {
	dataKey, _ := c.app["data_key"].([]byte)
	return tenancy.ImportedApp{
		ID: c.header.AppID, Text: c.text, Number: c.number, DataKey: dataKey, Config: c.configs[c.number("revision")], Secrets: c.secrets, Keys: c.keys.ring,
	}
}

// checkEnd checks the last line.
func (c *checker) checkEnd(end *ending, rows int64, mac []byte) error {
	given, err := hex.DecodeString(end.MAC)
	switch {
	case err != nil || !hmac.Equal(given, mac):
		return newFileError(c.reader.line, "the file was changed after the export: its digest is another one")
	case end.Rows != rows || !c.reader.atEnd():
		return newFileError(c.reader.line, "the last line does not fit the file")
	case c.app == nil:
		return newFileError(c.reader.line, "the file has no row of table app")
	}
	c.digest = end.MAC
	return nil
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
