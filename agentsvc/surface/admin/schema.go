package admin

import (
	"net/http"

	"stoa/agentsvc/config"
)

// handleSchema answers with the JSON Schema of app configurations.
func handleSchema(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(config.Schema())
	return nil
}
