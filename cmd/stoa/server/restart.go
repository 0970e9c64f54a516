package server

import (
	"reflect"
	"slices"
	"strings"

	"stoa/agentsvc/config"
)

// preserveRestartSettings copies the settings that need a restart from the configuration in force into cfg, its
// successor, and stores the keys that the file has changed among them, for keysAwaitingRestart. The provider is
// exempt: it is only shown on agent cards.
func (a *DefaultApp) preserveRestartSettings(cfg *config.Config) {
	now := a.cfg.Load()
	late := changedRestartKeys(now, cfg)
	a.restartKeys.Store(&late)
	provider := cfg.Server.Provider
	// The new configuration is not published yet, so that it can be changed in place.
	cfg.Server, cfg.Logger, cfg.Observability = now.Server, now.Logger, now.Observability
	cfg.Server.Provider = provider
}

// keysAwaitingRestart returns the keys whose new values in the file act only after a restart. The admin API shows
// them.
func (a *DefaultApp) keysAwaitingRestart() []string {
	if late := a.restartKeys.Load(); late != nil {
		return *late
	}
	return nil
}

// changedRestartKeys returns, sorted, the keys in which two configurations differ and which act only at a start:
// logger, observability and every key of server but the provider. It finds the keys of server by reflection over the
// yaml tags, so that a new key is included without a change here.
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
