package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/configfile"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/runtime"
	"stoa/tenancy"
	"stoa/tenancy/grant"
)

// DefaultApp is the configuration of this process's default app: the operator's file, or without a file a built-in
// one. On PostgreSQL a process without a file has no default app and cfg stays nil. cfg, fileHash and restartKeys are
// written at start and then only by the goroutine of watchFile; every other goroutine reads them.
type DefaultApp struct {
	path string // of the operator's file; "" = none
	// cfg is the configuration in force. It is replaced as a whole and never changed in place.
	cfg atomic.Pointer[config.Config]
	// fileHash is a string: the SHA-256 of the file in hexadecimal, "" without a file.
	fileHash atomic.Value
	// restartKeys are the keys that the file has changed but that act only after a restart.
	restartKeys   atomic.Pointer[[]string]
	notifications runtime.NotificationSettings // read-only
}

// fileFingerprint returns the hash of the operator's file, "" without one. The queue's lease renewal compares the
// hashes of all processes on the database and logs a warning if they differ, because the default app would then
// answer differently from process to process.
func (o *DefaultApp) fileFingerprint() string {
	hash, _ := o.fileHash.Load().(string)
	return hash
}

// LoadDefaultApp reads the operator's file. With an empty path it returns a DefaultApp without a configuration;
// New then calls useBuiltinConfig on SQLite. The error is a [document.Error] with positions for an invalid
// file.
func LoadDefaultApp(path string) (*DefaultApp, error) {
	notifications, err := loadNotificationSettings()
	if err != nil {
		return nil, err
	}
	o := &DefaultApp{path: path, notifications: notifications}
	if path == "" {
		return o, nil
	}
	cfg, err := configfile.Load(path, lookupEnv)
	if err != nil {
		return nil, err
	}
	o.cfg.Store(cfg)
	return o, nil
}

// Config returns the configuration in force, nil if there is none. It must not be changed.
func (o *DefaultApp) Config() *config.Config { return o.cfg.Load() }

// Path returns the path of the operator's file, "" without one.
func (o *DefaultApp) Path() string { return o.path }

// authConfig returns server.auth of the configuration: whether the default app requires authentication, and whose
// tokens it accepts.
func (o *DefaultApp) authConfig() config.Auth {
	if cfg := o.Config(); cfg != nil {
		return cfg.Server.Auth
	}
	return config.Auth{}
}

// useBuiltinConfig sets the configuration that is served without a file. A server that only this machine can reach
// uses the model provider whose API key or server is in the environment; any other uses the scripted model, because
// callers from elsewhere could otherwise spend the operator's key.
func (o *DefaultApp) useBuiltinConfig(loopback bool) (err error) {
	var lookup func(string) (string, bool)
	if loopback {
		if lookup, err = configfile.NewLookup(lookupEnv); err != nil {
			return err
		}
	}
	o.cfg.Store(config.DefaultConfig(lookup))
	return nil
}

// newAppBuilder returns the function with which the runtime cache builds an app from a snapshot. The default app is
// built from the operator's configuration with host powers; those of a tenant need grants.
func (o *DefaultApp) newAppBuilder(deps runtime.Dependencies) func(ctx context.Context, s *tenancy.Snapshot) (*runtime.Runtime, error) {
	return func(_ context.Context, s *tenancy.Snapshot) (*runtime.Runtime, error) {
		t := runtime.Tenant{ID: s.App.ID, Name: s.App.Name, Revision: s.App.Revision, Limits: s.App.EffectiveLimits(), Plan: s.App.Plan, Grants: s.App.Grants, Hash: s.Hasher.Sum}
		cfg, err := o.parseConfig(s)
		if err != nil {
			return nil, err
		}
		// The operator's file: host powers and private networks without grants.
		if s.App.ID == tenancy.DefaultID {
			t.DefaultApp, t.PrivateNetwork, t.Notifications = true, true, o.notifications
			return runtime.Build(cfg, t, deps)
		}
		// A tenant calls private addresses only with the grant, for its tools and its notifications alike.
		logWarnings(deps.Log.With("app", s.App.Name), cfg)
		t.PrivateNetwork = s.App.Grants.Has(grant.PrivateNetwork)
		t.Notifications.PrivateNetwork = t.PrivateNetwork
		if t.Notifications.Secret, err = parseNotificationSecret(s.Secret); err != nil {
			return nil, err
		}
		return runtime.Build(cfg, t, deps)
	}
}

// logWarnings writes what a configuration asks for and does not get.
func logWarnings(log *slog.Logger, cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		log.Warn("the configuration asks for what it does not get", "path", w.Path, "line", w.Line, "reason", w.Message)
	}
}

// parseConfig returns the configuration of a snapshot: for the default app the one in force, else the app's own. A
// tenant's configuration is untrusted: ${NAME} reads the app's secrets, never the environment.
func (o *DefaultApp) parseConfig(s *tenancy.Snapshot) (*config.Config, error) {
	if s.App.ID == tenancy.DefaultID {
		return o.Config(), nil
	}
	return config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, OperatorKey: lookupEnv})
}

// newConfigChecker returns the check of tenancy.Options.CheckConfig: it parses and builds the configuration as
// newAppBuilder does and discards the result. Because start, reload and dry run share runtime.Build, a configuration that
// passes here also loads.
func newConfigChecker(deps runtime.Dependencies) func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) error {
	return func(_ context.Context, src []byte, grants grant.List, plan string, lookup func(string) (string, bool)) (err error) {
		var values []string
		secret := func(name string) (string, bool) {
			v, ok := lookup(name)
			values = append(values, v)
			return v, ok
		}
		defer func() { err = document.HideValues(err, values) }()
		cfg, err := config.Parse(src, config.Options{Lookup: secret, Tenant: true, Grants: grants, OperatorKey: lookupEnv})
		if err != nil {
			return err
		}
		if _, err := parseNotificationSecret(secret); err != nil {
			return err
		}
		a, err := runtime.Build(cfg, runtime.Tenant{ID: "check", Name: "check", Plan: plan, Grants: grants, PrivateNetwork: grants.Has(grant.PrivateNetwork), DryRun: true}, deps)
		if err != nil {
			// The build knows the field's path only; add line and column for the caller.
			return document.AddPositions(err, "", src)
		}
		return a.Close()
	}
}

// checkBuild builds the default app from cfg and closes it. Its error carries positions in the operator's file.
func (o *DefaultApp) checkBuild(cfg *config.Config, deps runtime.Dependencies) error {
	a, err := runtime.Build(cfg, runtime.Tenant{ID: tenancy.DefaultID, Name: tenancy.DefaultName, DefaultApp: true, PrivateNetwork: true}, deps)
	if err == nil {
		return a.Close()
	}
	src, readErr := o.readSource()
	if readErr != nil {
		return err
	}
	return document.AddPositions(err, o.path, src)
}

// CheckConfigFile parses the configuration in the file at path and builds the app that it describes, with the same
// function as a server. It returns the configuration's warnings. deps need not have a database: a build opens no
// connection.
func CheckConfigFile(path string, deps runtime.Dependencies) ([]document.Problem, error) {
	cfg, err := configfile.Load(path, lookupEnv)
	if err != nil {
		return nil, err
	}
	return cfg.Warnings(), (&DefaultApp{path: path}).checkBuild(cfg, deps)
}

// publishAtStart checks that the configuration can be built, if there is one, and publishes it: a process whose own
// configuration does not build must not start. Errors are reported with positions here and not at the first request.
func (o *DefaultApp) publishAtStart(ctx context.Context, apps *tenancy.Service, deps runtime.Dependencies) error {
	if cfg := o.Config(); cfg != nil {
		if err := o.checkBuild(cfg, deps); err != nil {
			return err
		}
		logWarnings(deps.Log.With("file", o.path), cfg)
		if err := o.publishConfig(apps); err != nil {
			return err
		}
	}
	return apps.DefaultApp.Audit(ctx)
}

// watchFile applies changes of the operator's file and its .env until ctx ends. A file that does not load is logged
// and changes nothing.
func (o *DefaultApp) watchFile(ctx context.Context, apps *tenancy.Service, deps runtime.Dependencies, log *slog.Logger) error {
	return configfile.Watch(ctx, o.path, func() {
		if err := o.reloadFile(apps, deps); err != nil {
			log.Error("the configuration has changed and does not load; the one before stays in force", "file", o.path, "error", err)
			return
		}
		log.Info("the configuration was reloaded", "file", o.path)
		if err := apps.DefaultApp.Audit(ctx); err != nil {
			log.Error("the reloaded configuration is in force but could not be written to the audit trail", "file", o.path, "error", err)
		}
		if late := o.keysAwaitingRestart(); len(late) > 0 {
			log.Warn("changes of server, logger and observability need a restart: until then the previous values apply", "file", o.path, "changed", late)
		}
	})
}

// reloadFile replaces the configuration in force by that of the file, except for the settings that need a restart. It
// changes nothing if the file does not parse or build. Only the goroutine of watchFile calls it.
func (o *DefaultApp) reloadFile(apps *tenancy.Service, deps runtime.Dependencies) error {
	cfg, err := configfile.Load(o.path, lookupEnv)
	if err != nil {
		return err
	}
	if err := o.checkBuild(cfg, deps); err != nil {
		return err
	}
	logWarnings(deps.Log.With("file", o.path), cfg)
	// After checkBuild and before the store: the new configuration is complete and not yet visible to other
	// goroutines.
	o.preserveRestartSettings(cfg)
	o.cfg.Store(cfg)
	return o.publishConfig(apps)
}

// publishConfig makes the configuration in force the default app's in the tenancy service, which renews the app's
// runtime, and updates the file's hash.
func (o *DefaultApp) publishConfig(apps *tenancy.Service) error {
	cfg := o.cfg.Load()
	if cfg == nil {
		return errors.New("there is no configuration")
	}
	src, err := o.readSource()
	if err != nil {
		return err
	}
	if o.path != "" {
		sum := sha256.Sum256(src)
		o.fileHash.Store(hex.EncodeToString(sum[:]))
	}
	apps.DefaultApp.Set(cfg.Name, src)
	return nil
}

// readSource returns the text of the configuration, for display, hashing and positions.
func (o *DefaultApp) readSource() ([]byte, error) {
	if o.path == "" {
		return []byte(builtinConfigSource), nil
	}
	src, err := os.ReadFile(o.path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return src, nil
}

// builtinConfigSource is the text that the admin API shows for the built-in configuration. It must describe what
// [config.DefaultConfig] returns.
const builtinConfigSource = `version: 2
agents:
  assistant:
    description: A helpful assistant.
`
