package tenancy

import (
	"context"
	"encoding/json"
	"reflect"
)

// maskedApp returns app with Config set to the masked configuration, as an administrator may see it. A configuration
// that no longer parses is left out: the app must stay readable, or it could not be repaired.
func (s *store) maskedApp(app App, config []byte) App {
	if s.options.DecodeConfig == nil || s.options.MaskConfig == nil || len(config) == 0 {
		return app
	}
	if doc, err := s.options.DecodeConfig(config); err == nil {
		app.Config = s.options.MaskConfig(doc)
	}
	return app
}

// checkConfigLoads calls Options.CheckConfig with the app's grants and plan and with these secrets.
func (s *store) checkConfigLoads(ctx context.Context, config []byte, app *App, secrets map[string]string) error {
	if s.options.CheckConfig == nil {
		return nil
	}
	return s.options.CheckConfig(ctx, config, app.Grants, app.Plan, func(name string) (string, bool) {
		v, ok := secrets[name]
		return v, ok
	})
}

// restoreMasked returns config with the masked values replaced by the values in old. A configuration without a masked
// value is returned as the text that was given, with its comments and formatting; else the result is JSON.
func (s *store) restoreMasked(config, old []byte) ([]byte, error) {
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
