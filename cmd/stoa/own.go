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

// own is the configuration of this process's default app: from the operator's file, or without one the built-in one.
// On PostgreSQL a process without a file has no default app, and cfg stays nil.
type own struct {
	path    string
	cfg     atomic.Pointer[config.Config]
	hash    atomic.Value             // of the file, a string; "" without one
	late    atomic.Pointer[[]string] // what the file says and takes a restart
	telling app.Telling
}

// fingerprint tells two processes' files apart.
func (o *own) fingerprint() string {
	hash, _ := o.hash.Load().(string)
	return hash
}

// loadOwn reads the operator's file. Without one it makes the default app where there is to be one: on the vendor
// whose key is in the environment if only this machine can reach the server, else on the scripted model.
func loadOwn(path string) (*own, error) {
	o := &own{path: path}
	if path == "" {
		return o, nil
	}
	cfg, err := config.Load(path, environ)
	if err != nil {
		return nil, err
	}
	o.cfg.Store(cfg)
	return o, nil
}

// builtin sets the configuration that is served without a file.
func (o *own) builtin(loopback bool) error {
	provider, key := "scripted", ""
	if loopback {
		lookup, err := config.Lookup(environ)
		if err != nil {
			return err
		}
		provider, key = config.Detect(lookup)
	}
	o.cfg.Store(config.Default(provider, key))
	return nil
}

// build makes an app of a snapshot: the default one of the operator's configuration, any other of its own.
func (o *own) build(house app.House) func(ctx context.Context, s *tenancy.Snapshot) (*app.App, error) {
	return func(_ context.Context, s *tenancy.Snapshot) (*app.App, error) {
		t := app.Tenant{ID: s.App.ID, Name: s.App.Name, Revision: s.App.Revision, Limits: s.App.InForce(), Plan: s.App.Plan, Grants: s.App.Grants, Hash: s.Hasher.Sum}
		if s.App.ID == tenancy.DefaultID {
			t.Own, t.Inside, t.Telling = true, true, o.telling
			return app.Build(o.cfg.Load(), t, house)
		}
		cfg, err := config.Parse(s.Config, config.Options{Lookup: s.Secret, Tenant: true, Grants: s.App.Grants, Lend: environ})
		if err != nil {
			return nil, err
		}
		t.Inside = s.App.Grants.Has(grant.PrivateNetwork)
		t.Telling.Inside = t.Inside
		if t.Telling.Secret, err = signing(s.Secret); err != nil {
			return nil, err
		}
		return app.Build(cfg, t, house)
	}
}

// check decides whether a tenant's configuration would load: it is parsed and built like the real one, and the result
// dropped.
func check(house app.House) func(ctx context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) error {
	return func(_ context.Context, src []byte, grants grant.List, plan string, secret func(string) (string, bool)) error {
		cfg, err := config.Parse(src, config.Options{Lookup: secret, Tenant: true, Grants: grants, Lend: environ})
		if err != nil {
			return err
		}
		if _, err := signing(secret); err != nil {
			return err
		}
		a, err := app.Build(cfg, app.Tenant{ID: "check", Name: "check", Plan: plan, Grants: grants, Inside: grants.Has(grant.PrivateNetwork), Trial: true}, house)
		if err != nil {
			return config.Place(err, "", src)
		}
		return a.Close()
	}
}

// try builds the default app of cfg, which stands in o's file, and drops it.
func (o *own) try(cfg *config.Config, house app.House) error {
	a, err := app.Build(cfg, app.Tenant{ID: tenancy.DefaultID, Name: tenancy.DefaultName, Own: true, Inside: true}, house)
	if err == nil {
		return a.Close()
	}
	src, unread := o.source()
	if unread != nil {
		return err
	}
	return config.Place(err, o.path, src)
}

// watch applies changes of the operator's file and its .env until ctx ends. A file that does not load changes
// nothing but the log.
func (o *own) watch(ctx context.Context, apps *tenancy.Service, house app.House, log *slog.Logger) error {
	return config.Watch(ctx, o.path, func() {
		if err := o.reload(apps, house); err != nil {
			log.Error("the configuration has changed and does not load; the one before stays in force", "file", o.path, "error", err)
			return
		}
		log.Info("the configuration was reloaded", "file", o.path)
		if err := apps.NoteDefault(ctx); err != nil {
			log.Error("the reloaded configuration is in force and not on the audit trail", "file", o.path, "error", err)
		}
		if late := o.awaits(); len(late) > 0 {
			log.Warn("changes of server, logger and observability take a restart: until then what was there holds", "file", o.path, "changed", late)
		}
	})
}

func (o *own) reload(apps *tenancy.Service, house app.House) error {
	cfg, err := config.Load(o.path, environ)
	if err != nil {
		return err
	}
	if err := o.try(cfg, house); err != nil {
		return err
	}
	o.hold(cfg)
	o.cfg.Store(cfg)
	return o.announce(apps)
}

// announce makes the configuration in force the default app's.
func (o *own) announce(apps *tenancy.Service) error {
	cfg := o.cfg.Load()
	if cfg == nil {
		return errors.New("there is no configuration")
	}
	src, err := o.source()
	if err != nil {
		return err
	}
	if o.path != "" {
		sum := sha256.Sum256(src)
		o.hash.Store(hex.EncodeToString(sum[:]))
	}
	apps.SetDefault(cfg.Name, src)
	return nil
}

// source is the configuration as it is shown.
func (o *own) source() ([]byte, error) {
	if o.path == "" {
		return []byte(builtinSource), nil
	}
	src, err := os.ReadFile(o.path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return src, nil
}

// builtinSource is how the configuration that is served without a file is shown.
const builtinSource = `version: 2
agents:
  assistant:
    description: A helpful assistant.
`
