package config

import (
	"time"

	"stoa/agentsvc/config/document"
)

// DocumentStore is a collection of documents that agents can search.
type DocumentStore struct {
	// Source is where the documents come from.
	Source *Source `yaml:"source" jsonschema:"required"`
	// Chunking says how documents are cut into pieces.
	Chunking Chunking `yaml:"chunking"`
	// VectorStore keeps the pieces' vectors.
	VectorStore string `yaml:"vector_store" ref:"vector_stores"`
	// Embedder makes the pieces' vectors.
	Embedder string `yaml:"embedder" ref:"embedders"`
	// Collection is the set of vectors to use, instead of the vector store's own.
	Collection string `yaml:"collection"`
	// Watch indexes files again when they change.
	Watch bool `yaml:"watch" jsonschema:"default=false"`
	// IncrementalIndexing indexes only what changed since the last time.
	IncrementalIndexing bool `yaml:"incremental_indexing" jsonschema:"default=false"`
	// Search says how the store is searched.
	Search Search `yaml:"search"`
	// Indexing says how fast documents are read, and how often they are tried again.
	Indexing Indexing `yaml:"indexing"`
	// MCPParsers reads documents by tools of MCP servers.
	MCPParsers *MCPParsers `yaml:"mcp_parsers"`
}

// Source is where documents come from.
type Source struct {
	// Type is the kind of source.
	Type string `yaml:"type" jsonschema:"required,enum=directory,enum=sql,enum=api"`
	// Path is the folder to read.
	Path string `yaml:"path" only:"type=directory"`
	// Include are patterns of files to read. Without them, all that can be read.
	Include []string `yaml:"include" only:"type=directory"`
	// Exclude are patterns of files to leave out.
	Exclude []string `yaml:"exclude" only:"type=directory"`
	// MaxFileSize is the largest file to read, in bytes; 0 is the built-in bound.
	MaxFileSize int `yaml:"max_file_size" jsonschema:"minimum=0" only:"type=directory"`
	// SQL says which tables to read.
	SQL *SQLSource `yaml:"sql" only:"type=sql"`
	// API says which address to read.
	API *APISource `yaml:"api" only:"type=api"`
}

// SQLSource reads documents from tables.
type SQLSource struct {
	// Database is the connection to read from.
	Database string `yaml:"database" jsonschema:"required" ref:"databases"`
	// Tables are the tables to read.
	Tables []*Table `yaml:"tables" jsonschema:"required"`
}

// Table is a table to read documents from, one per row.
type Table struct {
	// Table is the table's name.
	Table string `yaml:"table" jsonschema:"required"`
	// Columns are the columns that make up a document.
	Columns []string `yaml:"columns" jsonschema:"required"`
	// IDColumn is the column that names a row.
	IDColumn string `yaml:"id_column" jsonschema:"required"`
	// UpdatedColumn is the column that says when a row changed.
	UpdatedColumn string `yaml:"updated_column"`
}

// APISource reads documents from an address that answers with JSON.
type APISource struct {
	// URL is the address.
	URL string `yaml:"url" jsonschema:"required"`
	// Headers are sent with the request.
	Headers map[string]string `yaml:"headers" secret:"true" to:"url,headers"`
	// IDField is the field that names a document.
	IDField string `yaml:"id_field"`
	// ContentField is the field that holds a document's text.
	ContentField string `yaml:"content_field"`
}

// Chunking says how documents are cut into pieces.
type Chunking struct {
	// Strategy is where to cut: anywhere (simple), with an overlap (overlapping), or where the meaning changes (semantic).
	Strategy string `yaml:"strategy" jsonschema:"enum=simple,enum=overlapping,enum=semantic,default=simple"`
	// Size is how long a piece is, in characters.
	Size int `yaml:"size" jsonschema:"minimum=1,default=1000"`
	// Overlap is how much of a piece the next one repeats.
	Overlap int `yaml:"overlap" jsonschema:"minimum=0,default=0"`
	// MinSize is the shortest piece worth keeping.
	MinSize int `yaml:"min_size" jsonschema:"minimum=0,default=100"`
	// MaxSize is the longest piece.
	MaxSize int `yaml:"max_size" jsonschema:"minimum=1,default=2000"`
	// PreserveWords never cuts inside a word.
	PreserveWords bool `yaml:"preserve_words" jsonschema:"default=true"`
}

// Indexing says how fast documents are read, and how often they are tried again.
type Indexing struct {
	// MaxConcurrent is how many documents are read at once; 0 is the built-in bound.
	MaxConcurrent int `yaml:"max_concurrent" jsonschema:"minimum=0"`
	// Retry says how often a document is tried again.
	Retry IndexingRetry `yaml:"retry"`
}

// IndexingRetry says how often a document is tried again.
type IndexingRetry struct {
	// MaxRetries is how often it is tried again.
	MaxRetries int `yaml:"max_retries" jsonschema:"minimum=0,default=3"`
	// BaseDelay is the wait before the first retry; it doubles with each further one.
	BaseDelay time.Duration `yaml:"base_delay" jsonschema:"default=1s"`
	// MaxDelay is the longest wait.
	MaxDelay time.Duration `yaml:"max_delay" jsonschema:"default=30s"`
}

// MCPParsers reads documents by tools of MCP servers.
type MCPParsers struct {
	// ToolNames are the tools to read with.
	ToolNames []string `yaml:"tool_names"`
	// Extensions are the file name endings to read with them.
	Extensions []string `yaml:"extensions"`
	// PreferNative uses the built-in readers first.
	PreferNative bool `yaml:"prefer_native" jsonschema:"default=false"`
}

// checkRules checks that the source has the block of its type, and the grant for a folder of the host.
func (sou *Source) checkRules(c *validation, s document.Location) {
	switch {
	case sou.Type == "directory":
		c.requireGrant(s.Child("type"), "filesystem")
		c.requireGrantedPath(s.Child("path"), "filesystem", sou.Path)
		if !c.doc.HasValue(s.Value, "path") {
			c.addProblem(s, "a directory source needs path")
		}
	case sou.Type == "sql" && sou.SQL == nil, sou.Type == "api" && sou.API == nil:
		c.addProblem(s, "a source of type "+sou.Type+" needs "+sou.Type)
	}
}
