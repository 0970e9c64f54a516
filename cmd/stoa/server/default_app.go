package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/configfile"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/runtime"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/grant"
)

// DefaultApp is the configuration of this process's default app: the operator's file, or without a file a built-in
// one. On PostgreSQL a process without a file has no default app and cfg stays nil. cfg, fileHash and restartKeys are
// written at start and then only under reloads; every other goroutine reads them.
type DefaultApp struct {
	path string // of the operator's file; "" = none
	// reloads is held while the configuration is replaced: by watchFiles and by the studio.
	reloads sync.Mutex
	// source is the text of the operator's file that is in force, nil without a file. After the start reloads guards it.
	source []byte
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
func (a *DefaultApp) fileFingerprint() string {
	hash, _ := a.fileHash.Load().(string)
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
	if o.source, err = configfile.Read(path); err != nil {
		return nil, err
	}
	if err := configfile.CheckText(path, o.source); err != nil {
		return nil, err
	}
	options, err := configfile.NewOptions(path, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(o.source, options)
	if err != nil {
		return nil, err
	}
	o.cfg.Store(cfg)
	return o, nil
}

// Config returns the configuration in force, nil if there is none. It must not be changed.
func (a *DefaultApp) Config() *config.Config { return a.cfg.Load() }

// Path returns the path of the operator's file, "" without one.
func (a *DefaultApp) Path() string { return a.path }

// authConfig returns server.auth of the configuration: whether the default app requires authentication, and whose
// tokens it accepts.
func (a *DefaultApp) authConfig() config.Auth {
	if cfg := a.Config(); cfg != nil {
		return cfg.Server.Auth
	}
	return config.Auth{}
}

// useBuiltinConfig sets the configuration that is served without a file. A server that only this machine can reach
// uses the model provider whose API key or server is in the environment; any other uses the scripted model, because
// callers from elsewhere could otherwise spend the operator's key.
func (a *DefaultApp) useBuiltinConfig(loopback bool) (err error) {
	var lookup func(string) (string, bool)
	if loopback {
		if lookup, err = configfile.NewLookup(os.LookupEnv); err != nil {
			return err
		}
	}
	a.cfg.Store(config.DefaultConfig(lookup))
	return nil
}

// newAppBuilder returns the function with which the runtime cache builds an app from a snapshot. The default app is
// built from the operator's configuration with host powers; those of a tenant need grants.
func (a *DefaultApp) newAppBuilder(deps runtime.Dependencies, memory *configMemory) func(ctx context.Context, s *tenancy.Snapshot) (*runtime.Runtime, error) {
	return func(_ context.Context, s *tenancy.Snapshot) (*runtime.Runtime, error) {
		t := runtime.Tenant{ID: s.App.ID, Name: s.App.Name, Revision: s.App.Revision, Limits: s.App.EffectiveLimits(), Plan: s.App.Plan, Grants: s.App.Grants, Hash: s.Hasher.Sum}
		cfg, err := a.parseConfig(s, memory)
		if err != nil {
			return nil, err
		}
		// The operator's file: host powers and private networks without grants.
		if s.App.ID == tenancy.DefaultID {
			t.DefaultApp, t.PrivateNetwork, t.Notifications, t.ConfiguredAt = true, true, a.notifications, s.App.UpdatedAt.UnixMicro()
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

// parseConfig returns the configuration of a snapshot: for the default app the one in force, else the app's own.
func (a *DefaultApp) parseConfig(s *tenancy.Snapshot, memory *configMemory) (*config.Config, error) {
	if s.App.ID == tenancy.DefaultID {
		return a.Config(), nil
	}
	return parseAppConfig(s, memory)
}

// parseAppConfig returns the app's own configuration of a snapshot. A tenant's configuration is untrusted: ${NAME} reads
// the app's secrets, never the environment.
func parseAppConfig(s *tenancy.Snapshot, memory *configMemory) (*config.Config, error) {
	defer memory.beginReading(s.Config)()
	return config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, OperatorKey: lookupEnv})
}

// checkAppConfig reports all problems of a tenant's configuration, and its warnings: it parses and builds it as
// newAppBuilder does and discards the result. Because start, reload and dry run share runtime.Build, a configuration
// that passes here also loads.
func checkAppConfig(src []byte, o config.Options, plan string, deps runtime.Dependencies) (warnings []document.Problem, err error) {
	var values []string
	lookup := o.Lookup
	o.Tenant, o.Lookup = true, func(name string) (string, bool) {
		v, ok := lookup(name)
		values = append(values, v)
		return v, ok
	}
	defer func() {
		err = document.HideValues(err, values)
		var hidden *document.Error
		if errors.As(document.HideValues(&document.Error{Problems: warnings}, values), &hidden) {
			warnings = hidden.Problems
		}
	}()
	t := runtime.Tenant{ID: "check", Name: "check", Plan: plan, Grants: o.Grants, PrivateNetwork: o.Grants.Has(grant.PrivateNetwork), DryRun: true}
	err = config.Check(src, o, func(cfg *config.Config) error {
		warnings = cfg.Warnings()
		return tryBuild(cfg, t, deps)
	})
	if err == nil {
		_, err = parseNotificationSecret(o.Lookup)
	}
	return warnings, err
}

// newConfigChecker returns the check of tenancy.Options.CheckConfig.
func newConfigChecker(deps runtime.Dependencies, memory *configMemory) func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) ([]tenancy.Warning, error) {
	return func(_ context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) ([]tenancy.Warning, error) {
		defer memory.beginReading(src)()
		problems, err := checkAppConfig(src, config.Options{Lookup: secret, Grants: grants, OperatorKey: lookupEnv}, plan, deps)
		return newWarnings(problems), err
	}
}

// newWarnings returns the warnings of a configuration as package tenancy knows them.
func newWarnings(problems []document.Problem) []tenancy.Warning {
	warnings := make([]tenancy.Warning, len(problems))
	for i, p := range problems {
		warnings[i] = tenancy.Warning{Path: p.Path, Line: p.Line, Column: p.Column, Message: p.Message}
	}
	return warnings
}

// tryBuild builds an app from cfg and closes it.
func tryBuild(cfg *config.Config, t runtime.Tenant, deps runtime.Dependencies) error {
	a, err := runtime.Build(cfg, t, deps)
	if err != nil {
		return err
	}
	return a.Close()
}

// operatorTenant is the tenant as which the default app's configuration is tried.
var operatorTenant = runtime.Tenant{ID: tenancy.DefaultID, Name: tenancy.DefaultName, DefaultApp: true, PrivateNetwork: true}

// checkOperatorConfig reports all problems of src, the text of the operator's file at path, with the present variables.
// It returns the configuration if there are none.
func checkOperatorConfig(path string, src []byte, deps runtime.Dependencies) (*config.Config, error) {
	if err := configfile.CheckText(path, src); err != nil {
		return nil, err
	}
	options, err := configfile.NewOptions(path, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	var cfg *config.Config
	err = config.Check(src, options, func(read *config.Config) error {
		cfg = read
		return tryBuild(read, operatorTenant, deps)
	})
	return cfg, err
}

// CheckConfigFile reports all problems of the operator's file at path, as a server does that starts with it, and its
// warnings. deps need not have a database: a build opens no connection.
func CheckConfigFile(path string, deps runtime.Dependencies) ([]document.Problem, error) {
	src, err := configfile.Read(path)
	if err != nil {
		return nil, err
	}
	cfg, err := checkOperatorConfig(path, src, deps)
	if cfg == nil {
		return nil, err
	}
	return cfg.Warnings(), err
}

// CheckAppConfigFile reports all problems of the file at path as the configuration of an app with these grants and
// secrets, as the admin API does, and its warnings. It assumes that the operator lends the models that operator_models
// allows.
func CheckAppConfigFile(path string, grants grant.List, secrets map[string]string, deps runtime.Dependencies) ([]document.Problem, error) {
	src, err := configfile.Read(path)
	if err != nil {
		return nil, err
	}
	secret := func(name string) (string, bool) { value, ok := secrets[name]; return value, ok }
	lent := func(string) (string, bool) { return "lent", true }
	return checkAppConfig(src, config.Options{File: path, Lookup: secret, Grants: grants, OperatorKey: lent}, "", deps)
}

// publishAtStart checks that the configuration can be built, if there is one, and publishes it: a process whose own
// configuration does not build must not start. Errors are reported with positions here and not at the first request.
func (a *DefaultApp) publishAtStart(ctx context.Context, apps *tenancy.Service, deps runtime.Dependencies) error {
	if cfg := a.Config(); cfg != nil {
		var err error
		if a.path == "" {
			err = tryBuild(cfg, operatorTenant, deps)
		} else {
			_, err = checkOperatorConfig(a.path, a.source, deps)
		}
		if err != nil {
			return settingError{err}
		}
		logWarnings(deps.Log.With("file", a.path), cfg)
		a.publishConfig(apps)
	}
	return apps.DefaultApp.Audit(ctx, audit.System)
}

// watchFiles applies changes of the .env next to the operator's file until ctx ends, and with withFile also those of the
// file. What does not load is logged and changes nothing. onReload gets the outcome of each reload.
func (a *DefaultApp) watchFiles(ctx context.Context, withFile bool, apps *tenancy.Service, deps runtime.Dependencies, onReload func(error), log *slog.Logger) error {
	files := []string{configfile.EnvFile(a.path)}
	if withFile {
		files = append(files, a.path)
	}
	err := configfile.Watch(ctx, files, func() {
		err := a.reload(withFile, apps, deps)
		onReload(err)
		if err != nil {
			log.Error("the configuration has changed and does not load; the one before stays in force", "file", a.path, "error", err)
			return
		}
		log.Info("the configuration was reloaded", "file", a.path)
		if err := apps.DefaultApp.Audit(ctx, audit.System); err != nil {
			log.Error("the reloaded configuration is in force but could not be written to the audit trail", "file", a.path, "error", err)
		}
		if late := a.keysAwaitingRestart(); len(late) > 0 {
			log.Warn("changes of server, logger and observability need a restart: until then the previous values apply", "file", a.path, "changed", late)
		}
	})
	// Without --watch the operator has not asked for it: a host without a free watch must not end the process.
	if err != nil && !withFile {
		log.Warn("changes of the .env file need a restart", "file", files[0], "error", err)
		return nil
	}
	return err
}

// reload parses the operator's file with the present variables and replaces the configuration in force, except for the
// settings that need a restart. Without readFile it parses the text that is in force: a file that changed since the
// start then waits for the restart. It changes nothing if the text does not parse or build.
func (a *DefaultApp) reload(readFile bool, apps *tenancy.Service, deps runtime.Dependencies) error {
	a.reloads.Lock()
	defer a.reloads.Unlock()
	src := a.source
	if readFile {
		var err error
		if src, err = configfile.Read(a.path); err != nil {
			return err
		}
	}
	cfg, err := checkOperatorConfig(a.path, src, deps)
	if err != nil {
		return err
	}
	a.apply(cfg, src, apps, deps)
	return nil
}

// apply replaces the configuration in force by cfg, which was parsed from src and checked, except for the settings that
// need a restart. The caller holds reloads.
func (a *DefaultApp) apply(cfg *config.Config, src []byte, apps *tenancy.Service, deps runtime.Dependencies) {
	logWarnings(deps.Log.With("file", a.path), cfg)
	// Before the store: the new configuration is complete and not yet visible to other goroutines.
	a.preserveRestartSettings(cfg)
	a.source = src
	a.cfg.Store(cfg)
	a.publishConfig(apps)
}

// publishConfig makes the configuration in force the default app's in the tenancy service, which renews the app's
// runtime, and updates the file's hash.
func (a *DefaultApp) publishConfig(apps *tenancy.Service) {
	src := a.source
	if a.path == "" {
		src = []byte(builtinConfigSource)
	} else {
		sum := sha256.Sum256(src)
		a.fileHash.Store(hex.EncodeToString(sum[:]))
	}
	apps.DefaultApp.Set(a.cfg.Load().Name, src)
}

// builtinConfigSource is the text that the admin API shows for the built-in configuration. It must describe what
// [config.DefaultConfig] returns.
const builtinConfigSource = `version: 2
agents:
  assistant:
    description: A helpful assistant.
`
