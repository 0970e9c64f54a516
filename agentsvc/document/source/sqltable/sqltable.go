// Package sqltable is the source of documents in tables of a SQL database: PostgreSQL, MySQL or MariaDB, and SQLite. A row
// is a document. Its text has a line "name: value" for each column; its id is the table's name, a slash and the value of
// the id column.
//
// A table is read page by page in the order of its id column (keyset pagination: an index makes each page cheap, and rows
// that are added meanwhile move nothing). Each page is read in a short transaction of its own that can change nothing, so
// that a listing that takes hours keeps no snapshot open in the database. With an updated column a listing reads the text
// of new versions only.
//
// The order is that of the database, by the type and collation of the id column, and not the byte order of the ids.
package sqltable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"unicode/utf8"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/egress"
	"stoa/tenancy/db"
)

// Bounds of a listing.
const (
	maxRowBytes = 10 << 20
	// maxPageRows bounds the rows of a page, maxPageBytes what is read of them; a page ends with the row that goes beyond.
	maxPageRows  = 200
	maxPageBytes = 16 << 20
	// maxTitleLength, maxUpdatedLength and maxAccessLength bound what is read of these columns, in characters. A title is
	// cut; a row with a longer value of the others fails.
	maxTitleLength, maxUpdatedLength, maxAccessLength = 200, 200, 16 << 10
)

// Options configure a [Source].
type Options struct {
	Config *config.SQLSource
	// Database is the database that Config.Database names, without a Schema.
	Database db.ExternalDB
	// Dialer is how the app reaches databases.
	Dialer db.Dialer
	// Memory names the pool and the app that the memory of pages is reserved from; nil = no bound in addition to those of a page.
	Memory *capacity.MemoryReservation
}

// Source is a list of tables.
type Source struct {
	options Options
	dialect dialect
	tables  []*table

	// mu guards the fields below.
	mu sync.Mutex
	// database is opened at the first use, since its file or server may be away when the app is built.
	database *db.ReadOnlyDB
	closed   bool
}

var _ source.Source = (*Source)(nil)

// New returns the source for tables. It connects to nothing.
func New(opts Options) (*Source, error) {
	d, ok := dialects[opts.Database.Driver]
	if !ok {
		return nil, source.PermanentErrorf("documents cannot be read from a database of the kind %q", opts.Database.Driver)
	}
	s := &Source{options: opts, dialect: d}
	for _, c := range opts.Config.Tables {
		s.tables = append(s.tables, &table{config: c, dialect: d})
	}
	return s, nil
}

// Wait implements [source.Source]: a database does not report changes.
func (s *Source) Wait(context.Context) error { return errors.ErrUnsupported }

// Close closes the connections.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.database == nil {
		return nil
	}
	d := s.database
	s.database = nil
	return d.Close()
}

// read runs f in a transaction of the database. name is the table, for the error.
func (s *Source) read(ctx context.Context, name string, f func(ctx context.Context, tx *sql.Tx) error) error {
	d, err := s.ensureOpen()
	if err == nil {
		err = d.Read(ctx, f)
	}
	if err != nil {
		return describeError(name, err)
	}
	return nil
}

// ensureOpen returns the open database.
func (s *Source) ensureOpen() (*db.ReadOnlyDB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, db.ErrClosed
	}
	if s.database == nil {
		d, err := db.OpenReadOnly(s.options.Database, s.options.Dialer)
		if err != nil {
			return nil, err
		}
		s.database = d
	}
	return s.database, nil
}

// describeError returns an error of a table in words for the one who configured it. Nothing of the server's own message
// is in it, which may hold data.
func describeError(name string, err error) error {
	var known *source.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, db.ErrClosed) {
		return source.Errorf("the source is closed")
	}
	message := db.PublicMessage(err)
	refused := source.DescribeRefusal(err, "name fewer columns, or a view of fewer")
	if refused != nil {
		message = refused.Message
	}
	if message == "" {
		message = egress.PublicMessage(err)
	}
	if refused != nil && refused.Permanent {
		return source.PermanentErrorf("the table %s cannot be read: %s; its documents stay as they are", name, message)
	}
	return source.Errorf("the table %s cannot be read: %s; its documents stay as they are", name, message)
}

// List implements [source.Source].
func (s *Source) List(ctx context.Context) iter.Seq2[source.Item, error] {
	return func(yield func(source.Item, error) bool) {
		listed, held := 0, new(source.Held)
		for _, t := range s.tables {
			err := s.listTable(ctx, t, held, func(item source.Item) error {
				if listed++; listed > source.MaxDocuments {
					return source.PermanentErrorf("the tables hold more than %d rows; name a view that selects fewer", source.MaxDocuments)
				}
				if !yield(item, nil) {
					return errStopped
				}
				return nil
			})
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(source.Item{}, err)
				return
			}
		}
	}
}

// errStopped reports that the caller of List wants no more documents.
var errStopped = errors.New("stopped")

// listTable lists the rows of a table.
func (s *Source) listTable(ctx context.Context, t *table, held *source.Held, add func(source.Item) error) error {
	name := t.config.Table
	var withoutID int64
	var l layout
	err := s.read(ctx, name, func(ctx context.Context, tx *sql.Tx) (err error) {
		if l, err = t.readLayout(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, t.countWithoutID()).Scan(&withoutID)
	})
	if err != nil {
		return err
	}
	if withoutID > 0 {
		item := source.NewFailedItem(name+"/(rows without id)", source.PermanentErrorf("%d rows of the table %s have no value in the column %s; give them one, or name a view without them",
			withoutID, name, t.config.IDColumn))
		if err := add(item); err != nil {
			return err
		}
	}
	p := position{limit: maxPageRows}
	for !p.done {
		if err := s.listPage(ctx, t, l, &p, held, add); err != nil {
			return err
		}
	}
	return nil
}

// listPage lists the rows of the next page of a table. Until its end their memory is reserved.
func (s *Source) listPage(ctx context.Context, t *table, l layout, p *position, held *source.Held, add func(source.Item) error) error {
	memory := s.options.Memory.NewPart(1)
	defer memory.ReleaseBytes()
	var page []row
	err := s.read(ctx, t.config.Table, func(ctx context.Context, tx *sql.Tx) (err error) {
		page, err = t.readPage(ctx, tx, memory, l, p)
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range page {
		item, err := s.newItem(ctx, t, l, r, held)
		if err != nil {
			return err
		}
		if err := add(item); err != nil {
			return err
		}
	}
	return nil
}

// newItem returns the document of a row.
func (s *Source) newItem(ctx context.Context, t *table, l layout, r row, held *source.Held) (source.Item, error) {
	id := t.config.Table + "/" + r.id
	access, err := parseAccess(r.access)
	switch {
	case len(id) > source.MaxIDBytes || !utf8.ValidString(id):
		return s.newFailedItem(id, access, source.PermanentErrorf("the value of the column %s makes an id of more than %d bytes or is no UTF-8", t.config.IDColumn, source.MaxIDBytes)), nil
	case !source.IsPrintable(id):
		return s.newFailedItem(id, access, source.PermanentErrorf("the value of the column %s has a control character, a line break or a mark of the direction of writing", t.config.IDColumn)), nil
	case utf8.RuneCountInString(r.access.String) > maxAccessLength:
		return s.newFailedItem(id, unreadableAccess, source.PermanentErrorf("the value of the column %s has more than %d characters", t.config.AccessColumn, maxAccessLength)), nil
	case utf8.RuneCountInString(r.updated.String) > maxUpdatedLength:
		return s.newFailedItem(id, access, source.PermanentErrorf("the value of the column %s has more than %d characters; name a column with a time or a version", t.config.UpdatedColumn, maxUpdatedLength)), nil
	case err != nil:
		return s.newFailedItem(id, access, source.PermanentErrorf("the column %s says in no known form who may read the row: %s", t.config.AccessColumn, err)), nil
	case r.size > maxRowBytes:
		return s.newFailedItem(id, access, source.PermanentErrorf("the columns of the row have %d bytes, more than %d", r.size, maxRowBytes)), nil
	}
	item := source.Item{
		ID: id, MediaType: "text/plain", Bytes: r.size, Access: access, Metadata: map[string]string{"table": t.config.Table},
		Title: strings.ToValidUTF8(strings.Join(strings.Fields(r.title.String), " "), "\ufffd"),
	}
	version := []string{source.AccessVersion(access), strings.Join(t.config.Columns, "\x00")}
	read := func(ctx context.Context) (string, error) { return s.readText(ctx, t, r.key) }
	if !l.withText && r.updated.Valid {
		item.Version, item.Open = source.Version(append(version, "updated", r.updated.String)...), source.NewOpen(read)
		return item, nil
	}
	text := r.text
	if l.withText {
		err = checkText(text)
	} else { // the row has no time of change
		memory := s.options.Memory.NewPart(1)
		defer memory.ReleaseBytes()
		if err := memory.ReserveBytes(ctx, r.size); err != nil {
			return source.Item{}, describeError(t.config.Table, err)
		}
		text, err = read(ctx)
	}
	var failed *source.Error
	switch {
	case errors.As(err, &failed) && failed.Permanent:
		return s.newFailedItem(id, access, failed), nil
	case err != nil:
		return source.Item{}, err
	}
	item.Version, item.Open = source.Version(append(version, "text", text)...), held.NewOpen(text, read)
	return item, nil
}

// newFailedItem returns the document of a row that cannot be read, which keeps its access.
func (s *Source) newFailedItem(id string, access document.Access, err *source.Error) source.Item {
	item := source.NewFailedItem(id, err)
	item.Access = access
	return item
}

// readText reads the text of the row with a key.
func (s *Source) readText(ctx context.Context, t *table, key any) (text string, err error) {
	err = s.read(ctx, t.config.Table, func(ctx context.Context, tx *sql.Tx) (err error) {
		text, err = t.readText(ctx, tx, key)
		return err
	})
	if err != nil {
		return "", err
	}
	return text, checkText(text)
}

// checkText returns an error for text that is none.
func checkText(text string) error {
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return source.PermanentErrorf("a column holds binary data, or text that is no UTF-8")
	}
	return nil
}

// formatRow returns the text of a row. Columns with NULL are left out.
func formatRow(columns []string, values []sql.NullString) string {
	var b strings.Builder
	for i, v := range values {
		if v.Valid {
			fmt.Fprintf(&b, "%s: %s\n", columns[i], v.String)
		}
	}
	return b.String()
}
