package tenancy

import (
	"context"
	"encoding/json"
)

// MaskedConfig is a configuration as an administrator may see it: with its secrets masked. Both forms have the order of
// the text that was sent.
type MaskedConfig struct {
	// Text is the text that was sent, YAML or JSON, with its comments.
	Text []byte
	// JSON is the same as a JSON object.
	JSON []byte
	// Warnings are what the configuration asks for and does not get, and the documents that it deletes. Only the methods that
	// check the configuration return them.
	Warnings []Warning
}

// Decode returns the configuration as a decoded document, nil if there is none.
func (c MaskedConfig) Decode() (doc map[string]any) {
	if json.Unmarshal(c.JSON, &doc) != nil {
		return nil
	}
	return doc
}

// Warning is something that a configuration asks for and does not get, such as a temperature beyond the vendor's range, or
// something that a change of it deletes.
type Warning struct {
	Path string
	// Line and Column are 0 for what the text does not have.
	Line, Column int
	Message      string
}

// maskedApp returns app with Config set to the masked configuration, as an administrator may see it. A configuration
// that no longer parses is left out: the app must stay readable, or it could not be repaired.
func (s *store) maskedApp(app App, config []byte) App {
	if s.options.MaskConfig == nil || len(config) == 0 {
		return app
	}
	if text, asJSON, err := s.options.MaskConfig(config); err == nil {
		app.Config.Text, app.Config.JSON = text, asJSON
	}
	return app
}

// checkConfigLoads calls Options.CheckConfig with the app's grants and plan and with these secrets. It sets the app's
// warnings.
func (s *store) checkConfigLoads(ctx context.Context, config []byte, app *App, secrets map[string]string) (err error) {
	if s.options.CheckConfig == nil {
		return nil
	}
	app.Config.Warnings, err = s.options.CheckConfig(ctx, config, app.Grants, app.Plan, func(name string) (string, bool) {
		v, ok := secrets[name]
		return v, ok
	})
	return err
}

// restoreMasked returns config with the masked values replaced by those of old.
func (s *store) restoreMasked(config, old []byte) []byte {
	if s.options.RestoreMasked == nil {
		return config
	}
	return s.options.RestoreMasked(config, old)
}
