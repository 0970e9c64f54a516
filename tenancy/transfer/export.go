package transfer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Export writes the app with that name to out. The app must be suspended and none of its runs executing, otherwise the
// error is [agentsvc.CodePrecondition] and nothing was written. The rows are those of one moment. The audit trail has an
// entry before the first byte is written, and one with the digest after the last. An error after the first byte leaves a
// file that no import accepts.
func (s *Service) Export(ctx context.Context, actor audit.Actor, name, passphrase string, out io.Writer) (*Summary, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if name == tenancy.DefaultName {
		return nil, agentsvc.NewInvalidError("app", "the app default belongs to the file of the process and cannot be exported: copy the file")
	}
	app, err := s.apps.LoadApp(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := checkSuspended(&app); err != nil {
		return nil, err
	}
	salt := newSalt()
	keys, err := deriveKeys(passphrase, salt)
	if err != nil {
		return nil, err
	}
	if err := s.record(ctx, actor, "app.export", &app, nil); err != nil {
		return nil, err
	}
	if err := s.apps.Trail.Seal(ctx); err != nil {
		return nil, err
	}
	w := newFileWriter(out, keys)
	e := exporter{service: s, keys: keys, w: w, summary: &Summary{App: app, Rows: map[string]int64{}}}
	err = s.db.Platform().ReadTx(ctx, func(tx *db.Tx) error { return e.run(ctx, tx, salt) })
	if err != nil {
		return nil, err
	}
	if e.summary.Digest, err = w.end(); err != nil {
		return nil, fmt.Errorf("export app %s: %w", name, err)
	}
	return e.summary, s.record(context.WithoutCancel(ctx), actor, "app.exported", &app, map[string]any{"rows": e.summary.total(), "digest": e.summary.Digest})
}

func checkSuspended(app *tenancy.App) error {
	if app.Status == tenancy.Suspended {
		return nil
	}
	return agentsvc.NewError(agentsvc.CodePrecondition, "the app %s is %s: suspend it first, so that the file has all of it", app.Name, app.Status)
}

// exporter is one export.
type exporter struct {
	service *Service
	keys    *fileKeys
	w       *fileWriter
	summary *Summary
}

// run writes the file but for its last line.
func (e *exporter) run(ctx context.Context, tx *db.Tx, salt []byte) error {
	app := &e.summary.App
	if err := checkIdle(ctx, tx, app); err != nil {
		return err
	}
	tables, err := readCatalog(ctx, tx, e.service.db.Engine())
	if err != nil {
		return err
	}
	h := header{
		Format: formatVersion, Schema: tables.schema, AppID: app.ID, App: app.Name, Issuer: e.service.options.Issuer,
		ExportedAt: time.Now().UTC().Format(time.RFC3339), Salt: salt, Check: e.keys.check,
	}
	if err := e.w.writeLine(h); err != nil {
		return err
	}
	for _, t := range tables.exported {
		if err := e.writeTable(ctx, tx, &t); err != nil {
			return fmt.Errorf("export app %s: table %s: %w", app.Name, t.name, err)
		}
	}
	return nil
}

// checkIdle returns an error if the app is not suspended any more, or a run of it or a model call is still under way: its
// end would be missing from the file.
func checkIdle(ctx context.Context, tx *db.Tx, app *tenancy.App) error {
	var status string
	var busy int64
	err := tx.Query(ctx, func(row db.Row) error { return row.Scan(&status) }, `SELECT status FROM app WHERE tenant = $1`, string(app.ID))
	if err != nil {
		return err
	}
	app.Status = tenancy.Status(status)
	if err := checkSuspended(app); err != nil {
		return err
	}
	err = tx.Query(ctx, func(row db.Row) error { return row.Scan(&busy) }, `SELECT (SELECT COUNT(*) FROM run WHERE tenant = $1 AND state = 'running')
		+ (SELECT COUNT(*) FROM reservation WHERE tenant = $1)`, string(app.ID))
	if err == nil && busy > 0 {
		err = agentsvc.NewError(agentsvc.CodePrecondition, "%d runs or model calls of the app %s have not ended yet: try again in a minute", busy, app.Name)
	}
	return err
}

// writeTable writes the app's rows of a table. A table without rows is left out.
func (e *exporter) writeTable(ctx context.Context, tx *db.Tx, t *table) error {
	id, begun := string(e.summary.App.ID), false
	reader := newRowReader(t)
	err := tx.Query(ctx, func(row db.Row) error {
		owner, values, err := reader.read(row)
		if err != nil {
			return err
		}
		// The statement selects the app's rows; this is the second of the two mechanisms that separate tenants.
		if owner != id {
			return errors.New("a row of another app was read")
		}
		if !begun {
			begun = true
			if err := e.w.writeLine(newTableLine(t)); err != nil {
				return err
			}
		}
		if err := reseal(t, values, id, e.keys.ring, e.service.keys, ""); err != nil {
			return err
		}
		e.summary.Rows[t.name]++
		return e.w.writeRow(values)
	}, t.selectSQL(), id)
	return err
}

func newTableLine(t *table) tableLine {
	line := tableLine{Table: t.name}
	for _, c := range t.columns {
		line.Columns = append(line.Columns, c.name)
	}
	return line
}

// reseal wraps the data key in a row by the master key of to, where from unwraps it, and sets the id of the master key.
func reseal(t *table, values []any, app string, to, from *keyring.Keyring, masterKey string) error {
	name := sealedColumns[t.name]
	if name == "" {
		return nil
	}
	i, master := t.index(name), t.index(masterKeyColumn)
	if i < 0 || master < 0 {
		return fmt.Errorf("a row without the columns %s and %s", name, masterKeyColumn)
	}
	var err error
	switch v := values[i].(type) {
	case []byte: // a data key
		values[i], err = to.AdoptDataKey(from, app, v)
	case string: // a value with its own data key, in base64
		var raw []byte
		if raw, err = base64.StdEncoding.DecodeString(v); err == nil {
			raw, err = to.AdoptValue(from, app, raw)
		}
		values[i] = base64.StdEncoding.EncodeToString(raw)
	default:
		err = errors.New("no sealed value")
	}
	values[master] = masterKey
	if err != nil {
		return fmt.Errorf("the sealed value cannot be sealed again: %w", err)
	}
	return nil
}

// rowReader scans the rows of a table.
type rowReader struct {
	owner  string
	dest   []any
	values []any
}

func newRowReader(t *table) *rowReader {
	r := &rowReader{values: make([]any, len(t.columns))}
	r.dest = append(r.dest, &r.owner)
	for _, c := range t.columns {
		switch c.kind {
		case kindText:
			r.dest = append(r.dest, new(*string))
		case kindNumber:
			r.dest = append(r.dest, new(*int64))
		case kindBoolean:
			r.dest = append(r.dest, new(*bool))
		default:
			r.dest = append(r.dest, new(any))
		}
	}
	return r
}

// read returns the app's id in a row and the other values, valid until the next call.
func (r *rowReader) read(row db.Row) (owner string, values []any, err error) {
	if err := row.Scan(r.dest...); err != nil {
		return "", nil, err
	}
	for i, d := range r.dest[1:] {
		switch d := d.(type) {
		case **string:
			r.values[i] = valueOf(*d)
		case **int64:
			r.values[i] = valueOf(*d)
		case **bool:
			r.values[i] = valueOf(*d)
		case *any:
			// SQLite's driver returns a nil slice for a value without bytes, which is not NULL.
			if content, ok := (*d).([]byte); ok {
				r.values[i] = append([]byte{}, content...)
			} else {
				r.values[i] = nil
			}
		}
	}
	return r.owner, r.values, nil
}

// valueOf returns what p points to, nil if p is nil.
func valueOf[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}
