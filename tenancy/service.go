package tenancy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
	"stoa/tenancy/signal"
)

// The topics of package signal on which changes of apps are published, after the commit.
const (
	// TopicApp has the id of the changed app as its key.
	TopicApp = "app"
	// topicName has an app name as its key that was taken by a new app or became free by a deletion.
	topicName = "app_name"
)

// Options are the functions that a [Service] calls for knowledge of other packages. Each may be nil; then the check or
// step is skipped. They are read-only after [New].
type Options struct {
	// CheckConfig reports whether a configuration would load with these grants and secrets and on this plan, and what it
	// would not get. Its error is returned to the caller unchanged. A configuration that it refuses is never stored.
	CheckConfig func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) ([]Warning, error)
	// CountDocuments returns how many documents each document store of an app has, by the store's name. It is called only for
	// a change with which stores leave the configuration. Without it a change does not warn of the documents that it deletes.
	CountDocuments func(ctx context.Context, app db.ID) (map[string]int, error)
	// Guard checks the folders that grants name; nil allows all but the system's own folders.
	Guard *grant.Guard
	// CheckPlan returns an error if there is no plan of that name. Without it any name is accepted.
	CheckPlan func(ctx context.Context, name string) error
	// DecodeConfig parses the text of a configuration, JSON or YAML. Without it names of agents are not checked.
	DecodeConfig func(src []byte) (map[string]any, error)
	// MaskConfig returns the text of a configuration in which secret values are replaced by a mask, and the same as a
	// JSON object in the order of the text. Without it no returned [App] has a Config.
	MaskConfig func(src []byte) (text, asJSON []byte, err error)
	// RestoreMasked returns a text with each masked value replaced by the value at the same path in old, so that an
	// administrator can send back a configuration that was read masked.
	RestoreMasked func(config, old []byte) []byte
	// FlattenConfig returns the leaf values of a decoded document by their paths. Without it entries of the audit trail
	// do not list the paths that changed in a configuration.
	FlattenConfig func(doc map[string]any) map[string]any
	// IsReservedIssuer reports whether the process itself accepts tokens of this issuer for this audience. No app may
	// register such a pair, because its tokens would be ambiguous.
	IsReservedIssuer func(issuer, audience string) bool
	// CheckHost resolves a host that keys are to be fetched from and refuses it if the app may not reach it; private
	// says whether the app may reach private networks. Its error may be shown to the caller. Without it every host is
	// allowed.
	CheckHost func(ctx context.Context, host string, private bool) error
	// EraseApp removes what an app owns outside the database, such as vectors and files. It must be idempotent: it is
	// called again for the same app after an error or a crash. An app that was moved continues in another installation: what
	// it has outside the database, and its accounts, are that one's.
	EraseApp func(ctx context.Context, by audit.Actor, app App, moved bool) error
	// RewrapSealed re-encrypts, with the current master key, the values that other packages sealed with former ones.
	RewrapSealed func(ctx context.Context, keys *keyring.Keyring) error
	// Log receives the errors of background work; nil means [slog.Default].
	Log *slog.Logger
}

// Service administers apps. It is safe for concurrent use, in any number of processes on one database. Every change is
// written in one transaction with its entry in the audit trail. The service checks no permissions: the caller decides
// who may call what, and passes the actor for the audit trail.
//
// All fields are set by [New] and read-only afterwards.
type Service struct {
	// Trail is the audit trail, which records the changes.
	Trail *audit.Trail
	// The parts of apps that are changed on their own.
	Revisions  Revisions
	Secrets    Secrets
	Roles      Roles
	Tokens     Tokens
	Issuers    Issuers
	DefaultApp *DefaultApp
	Moves      Moves

	store       *store
	maintenance *maintenance
}

// store reads and writes the apps in the database. All changes of an app go through [store.changeApp] or, for the
// default app, [store.changeDefaultApp].
type store struct {
	// db, keys, bus, options and log are set by New and read-only afterwards.
	db      *db.DB
	keys    *keyring.Keyring
	bus     *signal.Bus
	options Options
	log     *slog.Logger
	// defaultApp is nil until the first [DefaultApp.Set], which replaces the value as a whole.
	defaultApp atomic.Pointer[configuredApp]
}

// New returns a service over the migrated database d that publishes changes on bus. Start [Service.Run] for the
// background work: chaining of the audit trail, deletions and key rotation.
func New(d *db.DB, keys *keyring.Keyring, bus *signal.Bus, o Options) *Service {
	s := &store{db: d, keys: keys, bus: bus, options: o, log: o.Log}
	if s.log == nil {
		s.log = slog.Default()
	}
	trail := audit.New(d, keys, s.log)
	service := &Service{
		Trail: trail, Revisions: Revisions{s}, Secrets: Secrets{s}, Roles: Roles{s}, Tokens: Tokens{s}, Issuers: Issuers{s}, DefaultApp: &DefaultApp{store: s},
		store: s, maintenance: &maintenance{store: s, trail: trail, appDeleted: make(chan struct{}, 1)},
	}
	service.Moves = Moves{service}
	return service
}

// Run performs the background work until ctx ends, whose error it returns: it chains the audit trail, completes
// interrupted deletions, and re-encrypts what former master keys protect. It may run in any number of processes.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { _ = s.Trail.Run(ctx) })
	return s.maintenance.run(ctx)
}

// WatchApps calls probe with the id of an app that may have changed, "" for any app, until stop is called. probe must
// return at once.
func (s *Service) WatchApps(probe func(id string)) (stop func()) {
	return s.store.bus.WatchTopic(TopicApp, probe)
}

// WatchNames calls probe with a name that was taken by a new app or became free by a deletion, "" for any name, until
// stop is called. probe must return at once.
func (s *Service) WatchNames(probe func(name string)) (stop func()) {
	return s.store.bus.WatchTopic(topicName, probe)
}

// ChangeRelated runs f in a transaction that also increments the app's generation and writes an audit entry, for changes
// in tables of other packages. By the generation other processes notice the change. It returns the app afterwards.
func (s *Service) ChangeRelated(ctx context.Context, actor audit.Actor, action, app string, detail map[string]any, f func(ctx context.Context, tx *db.Tx, id db.ID) error) (App, error) {
	if app == DefaultName {
		return s.store.changeDefaultApp(ctx, actor, action, detail, func(ctx context.Context, tx *db.Tx) error {
			if err := f(ctx, tx, DefaultID); err != nil {
				return err
			}
			return insertRevocation(ctx, tx, DefaultID, APIKeySubjectPrefix)
		})
	}
	return s.store.changeApp(ctx, actor, action, app, false, func(e *appEdit) error {
		e.additional, e.detail = f, detail
		return nil
	})
}
