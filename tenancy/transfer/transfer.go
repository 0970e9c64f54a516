// Package transfer moves an app between installations: [Service.Export] writes all rows about it to a file,
// [Service.Import] makes them an app of this installation. Either database may be PostgreSQL or SQLite.
//
// The tables and their columns are read from the database's catalogue, as the deletion of an app reads them; only those
// that a file does not have are listed (leftOut). Values that are encrypted stay so: their data keys are unwrapped by the
// master key and wrapped by a key that a passphrase gives, and the reverse at the import.
//
// A file is read twice. The first reading checks every line and the digest of the whole without touching the database; the
// second inserts the rows in one transaction. Neither keeps more than a few rows in memory.
package transfer

import (
	"context"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Options bound and extend a [Service]. The zero value works.
type Options struct {
	// Issuer is the name of this installation's issuer of tokens. The owners of conversations in an imported file that its
	// own issuer named become owners by this one.
	Issuer string
	// MaxBytes bounds a file that is imported, 8 GiB; MaxRows its rows, 5 million.
	MaxBytes int64
	MaxRows  int64
	// Folder is where a file is stored while it is imported; "" = the system's folder for temporary files.
	Folder string
	// InTx is called in the transaction of an import after the app's rows were inserted, Imported after the commit. Either
	// may be nil. An error of Imported does not undo the import; it is logged by the caller that supplies the function.
	InTx     func(ctx context.Context, tx *db.Tx, app db.ID) error
	Imported func(ctx context.Context, app tenancy.App)
}

// The defaults of [Options], and how long an export or an import may take.
const (
	DefaultMaxBytes int64 = 8 << 30
	DefaultMaxRows  int64 = 5_000_000
	maxDuration           = 6 * time.Hour
)

// Service exports and imports apps. It is safe for concurrent use.
type Service struct {
	db      *db.DB
	keys    *keyring.Keyring
	apps    *tenancy.Service
	options Options
	// running has a value for each export and import under way; its capacity bounds them.
	running chan struct{}
}

// maxRunning bounds the exports and imports of a process at a time: each holds a connection of the database, and derives a
// key with 64 MiB of memory.
const maxRunning = 2

// New returns a service over the database d, whose apps are those of apps.
func New(d *db.DB, keys *keyring.Keyring, apps *tenancy.Service, o Options) *Service {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxRows == 0 {
		o.MaxRows = DefaultMaxRows
	}
	return &Service{db: d, keys: keys, apps: apps, options: o, running: make(chan struct{}, maxRunning)}
}

// MaxBytes returns the bound of a file that is imported.
func (s *Service) MaxBytes() int64 { return s.options.MaxBytes }

// Summary says what a file has.
type Summary struct {
	App tenancy.App
	// Rows counts the rows by table, without tables that have none.
	Rows map[string]int64
	// Digest is the one in the last line of the file.
	Digest string
	// Dropped counts rows that the import left out, by table: what is encrypted for an owner of another issuer.
	Dropped map[string]int64
}

// total returns the sum of all rows.
func (s *Summary) total() (n int64) {
	for _, rows := range s.Rows {
		n += rows
	}
	return n
}

// begin takes one of the running places, or returns an error with [agentsvc.CodeBusy]. The context it returns ends after
// maxDuration.
func (s *Service) begin(ctx context.Context) (context.Context, func(), error) {
	select {
	case s.running <- struct{}{}:
	default:
		return nil, nil, agentsvc.NewError(agentsvc.CodeBusy, "%d exports and imports are under way in this process: try again when one has ended", maxRunning)
	}
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	return ctx, func() { cancel(); <-s.running }, nil
}

// record writes an entry in the app's audit trail.
func (s *Service) record(ctx context.Context, actor audit.Actor, action string, app *tenancy.App, detail map[string]any) error {
	return s.apps.Trail.Record(ctx, audit.Entry{Actor: actor, Action: action, App: app.Name, AppID: app.ID, Detail: detail})
}
