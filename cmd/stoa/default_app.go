package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/tenancy"
	"stoa/tenancy/grant"
)

// defaultApp is the configuration of this process's default app: from the operator's file, or without one the built-in one.
// On PostgreSQL a process without a file has no default app, and cfg stays nil.
type defaultApp struct {
	path          string
	cfg           atomic.Pointer[config.Config]
	fileHash      atomic.Value             // of the file, a string; "" without one
	restartKeys   atomic.Pointer[[]string] // what the file says and takes a restart
	notifications app.NotificationSettings
}

// fileFingerprint tells two processes' files apart.
func (o *defaultApp) fileFingerprint() string {
	hash, _ := o.fileHash.Load().(string)
	return hash
}

// loadDefaultApp reads the operator's file. Without one it makes the default app where there is to be one: on the vendor
// whose key is in the environment if only this machine can reach the server, else on the scripted model.
func loadDefaultApp(path string) (*defaultApp, error) {
	o := &defaultApp{path: path}
	if path == "" {
		return o, nil
	}
	cfg, err := config.Load(path, lookupEnv)
	if err != nil {
		return nil, err
	}
	o.cfg.Store(cfg)
	return o, nil
}

// useBuiltinConfig sets the configuration that is served without a file.
func (o *defaultApp) useBuiltinConfig(loopback bool) error {
	provider, key := "scripted", ""
	if loopback {
		lookup, err := config.NewLookup(lookupEnv)
		if err != nil {
			return err
		}
		provider, key = config.DetectProvider(lookup)
	}
	o.cfg.Store(config.DefaultConfig(provider, key))
	return nil
}

// newAppBuilder makes an app of a snapshot: the default one of the operator's configuration, any other of its own.
func (o *defaultApp) newAppBuilder(deps app.Dependencies) func(ctx context.Context, s *tenancy.Snapshot) (*app.App, error) {
	return func(_ context.Context, s *tenancy.Snapshot) (*app.App, error) {
		t := app.Tenant{ID: s.App.ID, Name: s.App.Name, Revision: s.App.Revision, Limits: s.App.EffectiveLimits(), Plan: s.App.Plan, Grants: s.App.Grants, Hash: s.Hasher.Sum}
		if s.App.ID == tenancy.DefaultID {
			t.DefaultApp, t.PrivateNetwork, t.Notifications = true, true, o.notifications
			return app.Build(o.cfg.Load(), t, deps)
		}
		cfg, err := config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, OperatorKey: lookupEnv})
		if err != nil {
			return nil, err
		}
		t.PrivateNetwork = s.App.Grants.Has(grant.PrivateNetwork)
		t.Notifications.PrivateNetwork = t.PrivateNetwork
		if t.Notifications.Secret, err = parseNotificationSecret(s.Secret); err != nil {
			return nil, err
		}
		return app.Build(cfg, t, deps)
	}
}

// newConfigChecker decides whether a tenant's configuration would load: it is parsed and built like the real one, and the result
// dropped.
func newConfigChecker(deps app.Dependencies) func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) error {
	return func(_ context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) error {
		cfg, err := config.Parse(src, config.Options{Lookup: secret, Tenant: true, Grants: grants, OperatorKey: lookupEnv})
		if err != nil {
			return err
		}
		if _, err := parseNotificationSecret(secret); err != nil {
			return err
		}
		a, err := app.Build(cfg, app.Tenant{ID: "check", Name: "check", Plan: plan, Grants: grants, PrivateNetwork: grants.Has(grant.PrivateNetwork), DryRun: true}, deps)
		if err != nil {
			return config.AddPositions(err, "", src)
		}
		return a.Close()
	}
}

// checkBuild builds the default app of cfg, which stands in o's file, and drops it.
func (o *defaultApp) checkBuild(cfg *config.Config, deps app.Dependencies) error {
	a, err := app.Build(cfg, app.Tenant{ID: tenancy.DefaultID, Name: tenancy.DefaultName, DefaultApp: true, PrivateNetwork: true}, deps)
	if err == nil {
		return a.Close()
	}
	src, readErr := o.readSource()
	if readErr != nil {
		return err
	}
	return config.AddPositions(err, o.path, src)
}

// watchFile applies changes of the operator's file and its .env until ctx ends. A file that does not load changes
// nothing but the log.
func (o *defaultApp) watchFile(ctx context.Context, apps *tenancy.Service, deps app.Dependencies, log *slog.Logger) error {
	return config.Watch(ctx, o.path, func() {
		if err := o.reloadFile(apps, deps); err != nil {
			log.Error("the configuration has changed and does not load; the one before stays in force", "file", o.path, "error", err)
			return
		}
		log.Info("the configuration was reloaded", "file", o.path)
		if err := apps.AuditDefaultConfig(ctx); err != nil {
			log.Error("the reloaded configuration is in force and not on the audit trail", "file", o.path, "error", err)
		}
		if late := o.keysAwaitingRestart(); len(late) > 0 {
			log.Warn("changes of server, logger and observability take a restart: until then what was there holds", "file", o.path, "changed", late)
		}
	})
}

func (o *defaultApp) reloadFile(apps *tenancy.Service, deps app.Dependencies) error {
	cfg, err := config.Load(o.path, lookupEnv)
	if err != nil {
		return err
	}
	if err := o.checkBuild(cfg, deps); err != nil {
		return err
	}
	o.preserveRestartSettings(cfg)
	o.cfg.Store(cfg)
	return o.publishConfig(apps)
}

// publishConfig makes the configuration in force the default app's.
func (o *defaultApp) publishConfig(apps *tenancy.Service) error {
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
	apps.SetDefaultApp(cfg.Name, src)
	return nil
}

// readSource is the configuration as it is shown.
func (o *defaultApp) readSource() ([]byte, error) {
	if o.path == "" {
		return []byte(builtinConfigSource), nil
	}
	src, err := os.ReadFile(o.path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return src, nil
}

// builtinConfigSource is how the configuration that is served without a file is shown.
const builtinConfigSource = `version: 2
agents:
  assistant:
    description: A helpful assistant.
`
