package doctor

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/config"
	"stoa/agentsvc/sandbox"
	"stoa/cmd/stoa/server"
)

// The secrets of the environment.
const (
	adminSecret = "an-admin-secret-of-more-than-32-bytes"
	masterKey   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// password is in the addresses of the tests. No report may have it, nor a secret of the environment.
const password = "the-password"

func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable)) // the sandbox starts this binary as its helper
	for name, value := range map[string]string{server.AdminSecretName: adminSecret, server.MasterKeyName: masterKey} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// newTestInspector returns an inspector with the settings of flags and a configuration, nil for none.
func newTestInspector(t *testing.T, flags server.Flags, cfg *config.Config) *inspector {
	t.Helper()
	settings, err := server.ResolveSettings(flags, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return newInspector(Options{Settings: settings, Config: cfg})
}

// parseConfig returns the configuration of a text.
func parseConfig(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(text), config.Options{File: "stoa.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// wantCheck checks the outcome of the check with a name: its status and a part of its detail. A failure or a warning must
// say what to do, and nothing may have a secret.
func wantCheck(t *testing.T, checks []Check, name string, status Status, detail string) {
	t.Helper()
	found := false
	for _, c := range checks {
		if raw, _ := json.Marshal(c); strings.Contains(string(raw), password) || strings.Contains(string(raw), masterKey) || strings.Contains(string(raw), adminSecret) {
			t.Errorf("a check has a secret: %s", raw)
		}
		if (c.Action != "") != (c.Status == Failure || c.Status == Warning) {
			t.Errorf("%s %s: the action is %q", c.Status, c.Name, c.Action)
		}
		if c.Name != name {
			continue
		}
		found = true
		if c.Status != status || !strings.Contains(c.Detail, detail) {
			t.Errorf("%s is %s: %s\nwant %s: %s", name, c.Status, c.Detail, status, detail)
		}
	}
	if !found {
		t.Errorf("there is no check %s in %v", name, checks)
	}
}

// pointTo returns a pointer to a value of a flag.
func pointTo[T any](v T) *T { return &v }
