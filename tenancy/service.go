package tenancy

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
	"stoa/tenancy/signal"
)

// The topics of package signal on which changes of apps are published, after the commit.
const (
	// TopicApp has the id of the changed app as its key.
	TopicApp = "app"
	// TopicName has an app name as its key that was taken by a new app or became free by a deletion.
	TopicName = "app_name"
)

// Options are the functions that a [Service] calls for knowledge of other packages. Each may be nil; then the check or
// step is skipped. They are read-only after [New].
type Options struct {
	// CheckConfig reports whether a configuration would load with these grants and secrets and on this plan. Its error
	// is returned to the caller unchanged. A configuration that it refuses is never stored.
	CheckConfig func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(name string) (string, bool)) error
	// Guard checks the folders that grants name; nil allows all but the system's own folders.
	Guard *grant.Guard
	// CheckPlan returns an error if there is no plan of that name. Without it any name is accepted.
	CheckPlan func(ctx context.Context, name string) error
	// DecodeConfig parses the text of a configuration, JSON or YAML. Without it no returned [App] has a Config.
	DecodeConfig func(src []byte) (map[string]any, error)
	// MaskConfig returns a copy of the document in which secret values are replaced by a mask.
	MaskConfig func(doc map[string]any) map[string]any
	// RestoreMasked returns a copy of doc with each masked value replaced by the value at the same path in old, so that
	// an administrator can send back a document that was read masked.
	RestoreMasked func(doc, old map[string]any) map[string]any
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
	// called again for the same app after an error or a crash.
	EraseApp func(ctx context.Context, app App) error
	// RewrapSealed re-encrypts, with the current master key, the values that other packages sealed with former ones.
	RewrapSealed func(ctx context.Context, keys *Keyring) error
	// Log receives the errors of background work; nil means [slog.Default].
	Log *slog.Logger
}

// Service administers apps. It is safe for concurrent use, in any number of processes on one database. Every change is
// written in one transaction with its entry in the audit trail. The service checks no permissions: the caller decides
// who may call what, and passes the actor for the audit trail.
type Service struct {
	// db, keys, bus, options and log are set by New and read-only afterwards.
	db      *db.DB
	keys    *Keyring
	bus     *signal.Bus
	options Options
	log     *slog.Logger
	// defaultApp is nil until the first [Service.SetDefaultApp], which replaces the value as a whole.
	defaultApp atomic.Pointer[defaultApp]
	// auditedConfig is the default app's configuration that this process last compared with the audit trail; nil before
	// the first [Service.AuditDefaultConfig].
	auditedConfig atomic.Pointer[[]byte]
	// eraseNeeded is set after rows were deleted that may still be readable in the database's files, and cleared by
	// [Service.eraseDatabaseFiles].
	eraseNeeded atomic.Bool
	// appDeleted (capacity 1) wakes [Service.Run] after a deletion in this process, so that files are rebuilt soon.
	appDeleted chan struct{}
	// brokenChains holds the ids of audit chains whose tampering was logged already, as chain to true, so that each is
	// logged once per process.
	brokenChains sync.Map
}

// defaultApp is the app of the process's configuration file with its raw text. It is immutable.
type defaultApp struct {
	app    App
	config []byte
}

// New returns a service over the migrated database d that publishes changes on bus. Start [Service.Run] for the
// background work: chaining of the audit trail, deletions and key rotation.
func New(d *db.DB, keys *Keyring, bus *signal.Bus, o Options) *Service {
	s := &Service{db: d, keys: keys, bus: bus, options: o, log: o.Log, appDeleted: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s
}

// SetDefaultApp sets the configuration of the default app, which the caller has checked: at the start and after each
// change of the file. It increments the revision. It affects this process only, since each process has its own file;
// therefore revisions of the default app mean nothing to other processes.
func (s *Service) SetDefaultApp(displayName string, config []byte) {
	now := time.Now()
	next := &defaultApp{config: config, app: App{
		ID: DefaultID, Name: DefaultName, DisplayName: displayName, Status: Active, Revision: 1, Generation: 1,
		Grants: grant.List{}, Labels: map[string]string{}, UpdatedAt: now,
	}}
	if old := s.defaultApp.Load(); old != nil {
		next.app.Revision, next.app.Generation = old.app.Revision+1, old.app.Generation+1
	}
	s.defaultApp.Store(next)
	s.publishChange(DefaultID)
}

// publishChange makes all processes reload the app. Call it after the commit.
func (s *Service) publishChange(id db.ID) { s.bus.Publish(TopicApp, string(id)) }

// maskedApp returns app with Config set to the masked configuration, as an administrator may see it. A configuration
// that no longer parses is left out: the app must stay readable, or it could not be repaired.
func (s *Service) maskedApp(app App, config []byte) App {
	if s.options.DecodeConfig == nil || s.options.MaskConfig == nil || len(config) == 0 {
		return app
	}
	if doc, err := s.options.DecodeConfig(config); err == nil {
		app.Config = s.options.MaskConfig(doc)
	}
	return app
}

// restoreMasked returns config with the masked values replaced by the values in old. A configuration without a masked
// value is returned as the text that was given, with its comments and formatting; else the result is JSON.
func (s *Service) restoreMasked(config, old []byte) ([]byte, error) {
	if s.options.DecodeConfig == nil || s.options.RestoreMasked == nil {
		return config, nil
	}
	given, err := s.options.DecodeConfig(config)
	if err != nil {
		return config, nil //nolint:nilerr // the check reports what is wrong with it, and where
	}
	before, err := s.options.DecodeConfig(old)
	if err != nil {
		return config, nil //nolint:nilerr // an old configuration that no longer parses has nothing to give
	}
	restored := s.options.RestoreMasked(given, before)
	if reflect.DeepEqual(restored, given) {
		return config, nil
	}
	return json.Marshal(restored)
}

// checkConfigLoads calls Options.CheckConfig with the app's grants and plan and with these secrets.
func (s *Service) checkConfigLoads(ctx context.Context, config []byte, app *App, secrets map[string]string) error {
	if s.options.CheckConfig == nil {
		return nil
	}
	return s.options.CheckConfig(ctx, config, app.Grants, app.Plan, func(name string) (string, bool) {
		v, ok := secrets[name]
		return v, ok
	})
}
