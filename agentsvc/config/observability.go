package config

import (
	"strings"

	"stoa/agentsvc/config/document"
)

// Observability turns on what an operator watches.
type Observability struct {
	// Metrics are figures for Prometheus.
	Metrics Metrics `yaml:"metrics"`
}

// Metrics are figures for Prometheus.
type Metrics struct {
	// Enabled turns them on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// Endpoint is the path they are served at.
	Endpoint string `yaml:"endpoint" jsonschema:"default=/metrics"`
}

// checkRules checks that the endpoint is a path.
func (m *Metrics) checkRules(c *validation, s document.Location) {
	if !strings.HasPrefix(m.Endpoint, "/") {
		c.addProblem(s.Child("endpoint"), "must be a path that starts with /")
	}
}
