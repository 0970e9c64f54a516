package server

import (
	"slices"
	"testing"

	"stoa/agentsvc/config"
)

// TestChangedRestartKeys checks which changed keys of a file need a restart.
func TestChangedRestartKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"nothing":  {func(*config.Config) {}, nil},
		"an agent": {func(c *config.Config) { c.Name = "other" }, nil},
		"auth":     {func(c *config.Config) { c.Server.Auth.Audience = "others" }, []string{"server.auth"}},
		"provider": {func(c *config.Config) { c.Server.Provider = &config.Provider{Org: "Acme"} }, nil},
		"port":     {func(c *config.Config) { c.Server.Port++ }, []string{"server.port"}},
		"much": {func(c *config.Config) {
			c.Server.Auth.Enabled, c.Logger.Level, c.Observability.Metrics.Enabled = true, "error", !c.Observability.Metrics.Enabled
		}, []string{"logger", "observability", "server.auth"}},
	} {
		before, now := config.DefaultConfig(nil), config.DefaultConfig(nil)
		c.change(now)
		if got := changedRestartKeys(before, now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
