package config

import (
	"time"
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
	// Watch indexes files again when they change. Without it a source is read again every hour.
	Watch bool `yaml:"watch" jsonschema:"default=false"`
	// IncrementalIndexing reads the source again every 10 minutes. Only what changed since the last time is indexed, also without it.
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
	// Type is the kind of source: a folder, tables of a database, an address that answers with JSON, or documents that are
	// uploaded over the API and by `stoa docs put`.
	Type string `yaml:"type" jsonschema:"required,enum=directory,enum=sql,enum=api,enum=upload"`
	// Path is the folder to read.
	Path string `yaml:"path" only:"type=directory"`
	// Include are patterns of files to read, relative to path: `*` stands for part of a name, `**` for any folders, `{a,b}`
	// for one of several; a pattern without a slash fits in any folder, and one that fits a folder fits all that is in
	// it. Without patterns, all files are read. Names that begin with a dot need a pattern that writes the dot, and `.git`
	// is never read.
	Include []string `yaml:"include" only:"type=directory"`
	// Exclude are patterns of files and folders to leave out, of what include fits.
	Exclude []string `yaml:"exclude" only:"type=directory"`
	// MaxFileSize is the largest file to read, in bytes; 0 is 10 MiB.
	MaxFileSize int `yaml:"max_file_size" jsonschema:"minimum=0" only:"type=directory"`
	// Access are rules for who may read which files. The first rule that fits a file decides; a file that no rule fits is
	// open to all callers of the app.
	Access []*AccessRule `yaml:"access" only:"type=directory"`
	// SQL says which tables to read.
	SQL *SQLSource `yaml:"sql" only:"type=sql"`
	// API says which address to read.
	API *APISource `yaml:"api" only:"type=api"`
}

// AccessRule says who may read files.
type AccessRule struct {
	// Path is a pattern of files, written like those of include.
	Path string `yaml:"path" jsonschema:"required"`
	// Subjects are the callers that may read them, by the name their credential has.
	Subjects []string `yaml:"subjects"`
	// Roles are the roles whose callers may read them. Without subjects and roles, every caller of the app may.
	Roles []string `yaml:"roles"`
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
	// Table is the table's or view's name, after its schema and a dot if it needs one.
	Table string `yaml:"table" jsonschema:"required"`
	// Columns are the columns that make up a document, a line each. The first one with text is the document's title.
	Columns []string `yaml:"columns" jsonschema:"required"`
	// IDColumn is the column that names a row: unique, without NULL, and with an index. The document's id is the table's
	// name, a slash and this value.
	IDColumn string `yaml:"id_column" jsonschema:"required"`
	// UpdatedColumn is the column that says when a row changed. Without it, rows are compared by their content.
	UpdatedColumn string `yaml:"updated_column"`
	// AccessColumn is the column that says who may read a row: a JSON object with the lists `subjects` and `roles`, or
	// names of roles and `subject:NAME` with commas between them. Every caller of the app may read a row with NULL or an
	// empty text.
	AccessColumn string `yaml:"access_column"`
}

// APISource reads documents from an address that answers with JSON.
type APISource struct {
	// URL is the address.
	URL string `yaml:"url" jsonschema:"required"`
	// Headers are sent with the request.
	Headers map[string]string `yaml:"headers" secret:"true" to:"url,headers"`
	// IDField is the field that names a document, with dots between the names of nested fields.
	IDField string `yaml:"id_field" jsonschema:"default=id"`
	// ContentField is the field that holds a document's text, with dots between the names of nested fields. Without it,
	// the whole object is the text.
	ContentField string `yaml:"content_field"`
	// ItemsField is the field of the answer that holds the list of documents, with dots between the names of nested fields.
	// Without it, the answer is the list, or has one field with a list.
	ItemsField string `yaml:"items_field"`
	// Pagination says how the next page is found. Without it, it is the answer's Link header with rel="next", if it has one.
	Pagination *Pagination `yaml:"pagination"`
}

// Pagination says how the pages of an answer follow each other. It has either next_field or page_param.
type Pagination struct {
	// NextField is the field of the answer that holds the address of the next page or, with token_param, its token; no
	// value ends the list.
	NextField string `yaml:"next_field"`
	// TokenParam is the parameter of the address that takes the token in next_field.
	TokenParam string `yaml:"token_param"`
	// PageParam is the parameter of the address that takes the number of a page. A page without documents ends the list.
	PageParam string `yaml:"page_param"`
	// FirstPage is the number of the first page.
	FirstPage int `yaml:"first_page" jsonschema:"minimum=0,default=1"`
}

// Chunking says how documents are cut into pieces.
type Chunking struct {
	// Strategy is where to cut: anywhere (simple), with an overlap (overlapping), or where the meaning changes (semantic).
	Strategy string `yaml:"strategy" jsonschema:"enum=simple,enum=overlapping,enum=semantic,default=simple"`
	// Size is how long a piece is, in characters.
	Size int `yaml:"size" jsonschema:"minimum=50,maximum=20000,default=1000"`
	// Overlap is how much of a piece the next one repeats.
	Overlap int `yaml:"overlap" jsonschema:"minimum=0,default=0"`
	// MinSize is the shortest piece worth keeping.
	MinSize int `yaml:"min_size" jsonschema:"minimum=0,default=100"`
	// MaxSize is the longest piece.
	MaxSize int `yaml:"max_size" jsonschema:"minimum=50,maximum=20000,default=2000"`
	// PreserveWords never cuts inside a word.
	PreserveWords bool `yaml:"preserve_words" jsonschema:"default=true"`
}

// Indexing says how fast documents are read, and how often they are tried again.
type Indexing struct {
	// MaxConcurrent is how many documents are read at once; 0 is the built-in bound.
	MaxConcurrent int `yaml:"max_concurrent" jsonschema:"minimum=0"`
	// Retry says how often a document, or what all documents need, is tried again.
	Retry IndexingRetry `yaml:"retry"`
}

// IndexingRetry says how often a document is tried again, and what all documents need, such as the embedder or the vector store.
type IndexingRetry struct {
	// MaxRetries is how often it is tried again. Then a document has failed; what all documents need is tried again every 5
	// minutes, and when a document arrives or changes.
	MaxRetries int `yaml:"max_retries" jsonschema:"minimum=0,default=3"`
	// BaseDelay is the longest wait before the first retry; it doubles with each further one. Each wait is random, from
	// half of that time to the whole, so that what failed together is not repeated together.
	BaseDelay time.Duration `yaml:"base_delay" jsonschema:"default=1s"`
	// MaxDelay is the longest wait.
	MaxDelay time.Duration `yaml:"max_delay" jsonschema:"default=30s"`
}

// MCPParsers reads documents by tools of MCP servers.
type MCPParsers struct {
	// ToolNames are the tools of MCP servers to read with; the first that reads a document is used. A tool receives the
	// document by those of its parameters that are called `content_base64` or `uri` (a data: address), and may have
	// `name` and `media_type`.
	ToolNames []string `yaml:"tool_names" jsonschema:"required"`
	// Extensions are the file name endings to read with them, such as .pdf. Without them, all documents.
	Extensions []string `yaml:"extensions"`
	// PreferNative uses the built-in readers first, and the tools for what those cannot read.
	PreferNative bool `yaml:"prefer_native" jsonschema:"default=false"`
}
