package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/chunk"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/document/source/api"
	"stoa/agentsvc/document/source/directory"
	"stoa/agentsvc/document/source/mcpparser"
	"stoa/agentsvc/document/source/sqltable"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// indexBuilder builds what document stores are indexed with.
type indexBuilder struct {
	*databaseBuilder
	tools *toolBuilder
	// reader reads files; nil = this process reads none, since it only checks configurations.
	reader *extract.Reader
}

// buildIndexed sets what each document store is indexed with. The searchers are built before, since they share the
// embedders and vector stores.
func (b *indexBuilder) buildIndexed(all *Documents) {
	all.openVectorStore, all.vectorMemory = b.openVectorStore, b.newVectorMemory()
	for _, s := range all.Stores() {
		c := s.Config
		from, err := b.newDocumentSource(c, nil)
		if err != nil {
			b.addProblem("document_stores."+s.Name, err)
			continue
		}
		settings := chunk.Settings(c.Chunking)
		s.indexed = &indexing.Store{
			Spec: s.Spec, Version: b.sourceVersion(c), Source: from, Watch: c.Watch && c.Source.Type == "directory", Incremental: c.IncrementalIndexing,
			Read: b.newDocumentReader(c.MCPParsers),
			Cut: func(_ context.Context, content document.Content) ([]document.Chunk, error) {
				return chunk.Cut(content, settings, all.Rows.MaxChunks()), nil
			},
			MaxConcurrent: c.Indexing.MaxConcurrent, Retry: indexing.Retry(c.Indexing.Retry),
		}
		if v := s.Vectors; v != nil {
			s.indexed.Embedder = v.Embedder
			if v.External != nil {
				s.indexed.VectorStore, s.indexed.Vectors, s.indexed.Collection = vectorStoreKey(c), v.External, v.Collection
			}
		}
	}
}

// sourceVersion returns what changes with each revision, when a source is listed again. Revisions of the default app mean
// nothing to other processes; there it is the text of the store's configuration.
func (b *build) sourceVersion(c *config.DocumentStore) string {
	if !b.tenant.DefaultApp {
		return fmt.Sprint(b.tenant.Revision)
	}
	encoded, _ := json.Marshal(c) // of texts and numbers, which can always be encoded
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16])
}

// newDocumentReader returns what reads the text of documents: the built-in readers, and tools of MCP servers for the files
// that c names.
func (b *indexBuilder) newDocumentReader(c *config.MCPParsers) func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
	native := func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
		if b.reader == nil {
			return document.Content{}, errors.New("this process reads no documents")
		}
		return b.reader.Read(ctx, b.appID(), name, mediaType, body)
	}
	if c == nil {
		return native
	}
	return func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
		if !mcpparser.Handles(c, name) {
			return native(ctx, name, mediaType, body)
		}
		content, err := io.ReadAll(body)
		if err != nil {
			return document.Content{}, err
		}
		if c.PreferNative {
			read, err := native(ctx, name, mediaType, strings.NewReader(string(content)))
			if err == nil || ctx.Err() != nil {
				return read, err
			}
		}
		parse, err := b.newParser(ctx, c)
		if err != nil {
			return document.Content{}, err
		}
		return parse(ctx, name, mediaType, content)
	}
}

// newParser returns the parser of the tools that c names. MCP servers list their tools when they are asked, so that it is
// made for each document.
func (b *indexBuilder) newParser(ctx context.Context, c *config.MCPParsers) (mcpparser.ParseFunc, error) {
	scope := agentsvc.RunScope{}
	var found []tool.Tool
	for _, from := range b.tools.sources {
		list, err := from.ListTools(ctx, scope.Session)
		if err != nil {
			continue // its tools are reported as missing below
		}
		found = append(found, list...)
	}
	o := mcpparser.Options{Config: c, Scope: scope}
	for _, name := range c.ToolNames {
		i := slices.IndexFunc(found, func(t tool.Tool) bool { return t.Spec().Name == name })
		if i < 0 {
			return nil, source.Errorf("the tool %s of mcp_parsers is not offered by any MCP server of the app at present", name)
		}
		o.Tools = append(o.Tools, found[i])
	}
	return mcpparser.New(o)
}

// vectorStoreKey returns the name by which [indexing.App].OpenVectorStore finds the vector store of a document store: its
// entry in the configuration, and the beginning of its collections' names if that is another than the entry's.
func vectorStoreKey(c *config.DocumentStore) string {
	return url.PathEscape(c.VectorStore) + ":" + url.PathEscape(c.Collection)
}

// openVectorStore opens the vector store of a key, if the configuration still has it.
func (b *indexBuilder) openVectorStore(key string) (s vectorstore.Store, closeStore func() error, found bool) {
	entry, prefix, _ := strings.Cut(key, ":")
	name, err := url.PathUnescape(entry)
	collection, prefixErr := url.PathUnescape(prefix)
	c := b.cfg.VectorStores[name]
	if err != nil || prefixErr != nil || c == nil {
		return nil, nil, false
	}
	// An index in this process must not be opened twice.
	if s := b.vectorStores[[2]string{name, collectionPrefix(c, collection)}]; s != nil {
		return s, func() error { return nil }, true
	}
	s, err = b.buildVectorStore(c, collectionPrefix(c, collection))
	if err != nil {
		return nil, nil, false
	}
	return s, s.Close, true
}

// DocumentSpecs returns the document stores of the configuration as their rows know them.
func (rt *Runtime) DocumentSpecs() (specs []corpus.StoreSpec) {
	for _, s := range rt.documents.Stores() {
		specs = append(specs, s.Spec)
	}
	return specs
}

// NewIndexingApp returns the app for an indexer, which calls release when it no longer uses the runtime.
func (rt *Runtime) NewIndexingApp(name string, release func()) *indexing.App {
	d := rt.documents
	app := &indexing.App{Name: name, Stores: map[string]*indexing.Store{}, Rows: d.Rows, OpenVectorStore: d.openVectorStore, VectorMemory: d.vectorMemory, Release: release}
	for storeName, s := range d.stores {
		app.Stores[storeName] = s.indexed
	}
	return app
}

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
		if c.Source.API.URL == "" {
			return nil, errDependencyInvalid // a missing address is refused before
		}
		s, err = api.New(api.Options{Config: c.Source.API, Client: b.egressClient.HTTPWithHeaderTimeout(sourceTimeout), Memory: b.newAnswerMemory()})
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
	opts := directory.Options{Config: c.Source, Watch: c.Watch, Reads: reads, IsOwnFile: b.folderGuard.IsOwnFile}
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
	return sqltable.New(sqltable.Options{Config: c, Database: g, Dialer: dialer, Memory: b.newAnswerMemory()})
}
