package transfer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

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
			return agentsvc.NewError(agentsvc.CodeTooLarge, "the file has more than %d rows; the operator may permit more (--max-import-rows)", c.maxRows)
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
