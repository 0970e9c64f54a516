package admin_test

import (
	"net/http"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/surfacetest"
)

// TestSchema checks that the operator, whose credential belongs to no app, reads the schema of configurations.
func TestSchema(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	resp, body := h.Do(t, http.MethodGet, "/admin/schema", surfacetest.Secret, nil)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || body != string(config.Schema()) {
		t.Errorf("%d %s %.200s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	if resp, body := h.Do(t, http.MethodGet, "/admin/schema", "", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a credential: %d %.200s", resp.StatusCode, body)
	}
}
