package main

import (
	"reflect"
	"slices"
	"strings"

	"stoa/agentsvc/config"
)

// preserveRestartSettings leaves in cfg, which is to take the place of the configuration in force, what takes a restart as it is in force,
// and notes what the file would have otherwise.
func (o *defaultApp) preserveRestartSettings(cfg *config.Config) {
	now := o.cfg.Load()
	late := changedRestartKeys(now, cfg)
	o.restartKeys.Store(&late)
	provider := cfg.Server.Provider
	cfg.Server, cfg.Logger, cfg.Observability = now.Server, now.Logger, now.Observability
	cfg.Server.Provider = provider
}

// keysAwaitingRestart names the keys of the file that act once the process is restarted.
func (o *defaultApp) keysAwaitingRestart() []string {
	if late := o.restartKeys.Load(); late != nil {
		return *late
	}
	return nil
}

// changedRestartKeys names the keys in which two configurations differ and which act at a start alone: logger, observability and
// those of server, but for the provider, which stands on cards.
func changedRestartKeys(now, next *config.Config) (keys []string) {
	was, is := reflect.ValueOf(now.Server), reflect.ValueOf(next.Server)
	for i := range was.NumField() {
		key, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("yaml"), ",")
		if key != "provider" && !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			keys = append(keys, "server."+key)
		}
	}
	if !reflect.DeepEqual(now.Logger, next.Logger) {
		keys = append(keys, "logger")
	}
	if now.Observability != next.Observability {
		keys = append(keys, "observability")
	}
	slices.Sort(keys)
	return keys
}
