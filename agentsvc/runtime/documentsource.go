package runtime

import (
	"errors"
	"fmt"
	"os"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/document/source/api"
	"stoa/agentsvc/document/source/directory"
	"stoa/agentsvc/document/source/sqltable"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// sourceTimeout bounds the wait for the headers of an answer of an address that documents are read from.
const sourceTimeout = 30 * time.Second

// newDocumentSource returns where the documents of a store come from, nil if they are uploaded. It is closed when the app
// is closed. reads reports whether a file with a name can be read. Nothing is opened or called yet: what is away when the
// app is built fails the listing, which is repeated.
func (b *databaseBuilder) newDocumentSource(c *config.DocumentStore, reads func(name string) bool) (s source.Source, err error) {
	switch c.Source.Type {
	case "directory":
		s, err = b.newDirectorySource(c, reads)
	case "sql":
		s, err = b.newTableSource(c.Source.SQL)
	case "api":
		s, err = api.New(api.Options{Config: c.Source.API, Client: b.egressClient.HTTPWithHeaderTimeout(sourceTimeout)})
	case "upload":
		return nil, nil
	default:
		err = fmt.Errorf("there is no source of the type %q", c.Source.Type)
	}
	if errors.Is(err, errDependencyInvalid) {
		return nil, err
	}
	if err != nil {
		return nil, agentsvc.NewInvalidError("source", "%v", err)
	}
	b.closers = append(b.closers, func() error { return source.Close(s) })
	return s, nil
}

// newDirectorySource returns the source of a folder. A tenant's is opened below its granted root, and the grant is checked
// again each time, as for databases.
func (b *databaseBuilder) newDirectorySource(c *config.DocumentStore, reads func(name string) bool) (source.Source, error) {
	opts := directory.Options{Config: c.Source, Watch: c.Watch, Reads: reads}
	if !b.tenant.DefaultApp {
		if _, err := b.resolvePath("path", grant.Filesystem, c.Source.Path); err != nil {
			return nil, err
		}
		guard, roots := b.folderGuard, b.tenant.Grants.Roots(grant.Filesystem)
		opts.OpenRoot = func() (*os.Root, error) {
			at, err := guard.ResolvePath(roots, c.Source.Path)
			if err != nil {
				return nil, err
			}
			return at.OpenFolder()
		}
	}
	return directory.New(opts)
}

// newTableSource returns the source of tables, with connections of its own that can only read.
func (b *databaseBuilder) newTableSource(c *config.SQLSource) (source.Source, error) {
	d := b.cfg.Databases[c.Database]
	if d == nil {
		return nil, errDependencyInvalid
	}
	g, dialer := newExternalDB(d), db.Dialer{Dial: b.egressClient.DialContext}
	g.Schema = "" // the tables are the app's own, not Stoa's
	if g.Driver == db.SQLite && !b.tenant.DefaultApp {
		g.Database, dialer.TenantFile = b.databaseFile(d)
	}
	return sqltable.New(sqltable.Options{Config: c, Database: g, Dialer: dialer})
}
