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

// The topics on which changes of apps are signalled.
const (
	TopicApp  = "app"      // key: the id of an app that changed
	TopicName = "app_name" // key: a name that was taken or became free
)

// Options complete a [Service]. The zero value works; what is missing is not done.
type Options struct {
	// CheckConfig decides whether a configuration would load with these grants and secrets, on this plan. Its error is handed to
	// the caller as it is. What it refuses is never stored.
	CheckConfig func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(name string) (string, bool)) error
	// Guard knows which folders no grant reaches.
	Guard *grant.Guard
	// CheckPlan returns an error if there is no plan of that name. Without it any name will do.
	CheckPlan func(ctx context.Context, name string) error
	// DecodeConfig parses a configuration's text. Without it no answer shows a configuration.
	DecodeConfig func(src []byte) (map[string]any, error)
	// MaskConfig returns a copy of the document with what is secret hidden.
	MaskConfig func(doc map[string]any) map[string]any
	// RestoreMasked returns a copy of doc with each hidden value replaced by the one at its place in old.
	RestoreMasked func(doc, old map[string]any) map[string]any
	// FlattenConfig returns the values of a decoded document by the paths of the fields that hold them. Without it the audit trail
	// does not tell what changed in a configuration.
	FlattenConfig func(doc map[string]any) map[string]any
	// IsReservedIssuer reports whether tokens of an issuer for an audience are accepted by the process itself, so that no app can
	// have them.
	IsReservedIssuer func(issuer, audience string) bool
	// CheckHost looks up a host that keys are to be fetched from, with the grant of private networks or without. Its error says
	// what is wrong with it and may be shown. Without it every host will do.
	CheckHost func(ctx context.Context, host string, private bool) error
	// EraseApp removes what an app owns outside the database, such as vectors and files. It may be called again for the
	// same app.
	EraseApp func(ctx context.Context, app App) error
	// RewrapSealed has the current master key wrap what other rooms have sealed under former ones.
	RewrapSealed func(ctx context.Context, keys *Keyring) error
	Log          *slog.Logger
}

// Service administers apps. It is safe for concurrent use, in any number of processes on one database. Every change
// is written together with its entry in the audit trail; the actor is who the caller says it is.
type Service struct {
	db            *db.DB
	keys          *Keyring
	bus           *signal.Bus
	options       Options
	log           *slog.Logger
	defaultApp    atomic.Pointer[defaultApp]
	auditedConfig atomic.Pointer[[]byte] // configuration of the default app that is on the audit trail
	eraseNeeded   atomic.Bool            // what was deleted may still be in the files of the database
	appDeleted    chan struct{}          // an app was deleted in this process
	brokenChains  sync.Map               // chains of the audit trail of which the log has told
}

// defaultApp is the app of the process's config file.
type defaultApp struct {
	app    App
	config []byte
}

// New returns a service over migrated d that signals changes on bus.
func New(d *db.DB, keys *Keyring, bus *signal.Bus, o Options) *Service {
	s := &Service{db: d, keys: keys, bus: bus, options: o, log: o.Log, appDeleted: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s
}

// SetDefaultApp makes config, which must have been checked, the default app's: at start and after each change of its
// file. It belongs to this process alone.
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

func (s *Service) publishChange(id db.ID) { s.bus.Publish(TopicApp, string(id)) }

// maskedApp returns app as an administrator sees it.
func (s *Service) maskedApp(app App, config []byte) App {
	if s.options.DecodeConfig == nil || s.options.MaskConfig == nil || len(config) == 0 {
		return app
	}
	if doc, err := s.options.DecodeConfig(config); err == nil {
		app.Config = s.options.MaskConfig(doc)
	}
	return app
}

// restoreMasked returns config with the values that an answer had hidden put back from old. What holds none stays the text
// that was given.
func (s *Service) restoreMasked(config, old []byte) ([]byte, error) {
	if s.options.DecodeConfig == nil || s.options.RestoreMasked == nil {
		return config, nil
	}
	given, err := s.options.DecodeConfig(config)
	if err != nil {
		return config, nil //nolint:nilerr // the check will tell what is wrong with it, and where
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

func (s *Service) checkConfigLoads(ctx context.Context, config []byte, app *App, secrets map[string]string) error {
	if s.options.CheckConfig == nil {
		return nil
	}
	return s.options.CheckConfig(ctx, config, app.Grants, app.Plan, func(name string) (string, bool) {
		v, ok := secrets[name]
		return v, ok
	})
}
