package config

import (
	"fmt"

	"stoa/agentsvc/config/document"
)

// RateLimiting bounds how much a session or a user may ask for. A call beyond a limit is refused (429).
type RateLimiting struct {
	// Enabled turns the limits on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// Scope is whose calls are counted together: those of one context (session) or of one user. A call without a context
	// opens one and counts in it. All callers without a credential are one user.
	Scope string `yaml:"scope" jsonschema:"enum=session,enum=user,default=session"`
	// Backend is where the counts are kept: in memory, which is the server's Redis where it has one and else this process
	// alone, or in a database.
	Backend string `yaml:"backend" jsonschema:"enum=memory,enum=sql,default=memory"`
	// SQLDatabase is the database they are kept in. Without it, it is the server's own.
	SQLDatabase string `yaml:"sql_database" ref:"databases" only:"backend=sql"`
	// Limits are the limits; all of them hold.
	Limits []*Limit `yaml:"limits"`
}

// Limit is one limit.
type Limit struct {
	// Type is what is counted: calls, or the tokens that models take in and put out for them.
	Type string `yaml:"type" jsonschema:"required,enum=token,enum=count"`
	// Window is the time after which the count starts again: one of the calendar's, in UTC. A week begins on Monday.
	Window string `yaml:"window" jsonschema:"required,enum=minute,enum=hour,enum=day,enum=week,enum=month"`
	// Limit is how much fits into one window.
	Limit int `yaml:"limit" jsonschema:"required,minimum=1,maximum=1000000000000"`
}

// checkRules checks the database and that no two limits have the same type and window.
func (r *RateLimiting) checkRules(c *validation, s document.Location) {
	c.refuseMySQL(s.Child("sql_database"), r.SQLDatabase)
	if r.Enabled {
		c.requireKeys(s, "limits")
	}
	if r.Enabled && r.Scope == "user" && c.anonymous {
		c.addWarning(s.Child("scope"), "callers without a credential are one user, so one of them can use up the limits of all: turn server.auth on, or use the scope session")
	}
	seen := map[Limit]int{}
	for i, l := range r.Limits {
		if l == nil || l.Type == "" || l.Window == "" {
			continue // a required key is missing, which decode has reported
		}
		same := Limit{Type: l.Type, Window: l.Window}
		if first, twice := seen[same]; twice {
			c.addProblem(s.Child("limits").Item(i), fmt.Sprintf("limits[%d] is about the same type and window", first))
			continue
		}
		seen[same] = i
	}
}
