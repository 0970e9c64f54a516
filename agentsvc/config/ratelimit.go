package config

// RateLimiting bounds how much a session or a user may ask for.
type RateLimiting struct {
	// Enabled turns the limits on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// Scope is whose requests are counted together.
	Scope string `yaml:"scope" jsonschema:"enum=session,enum=user,default=session"`
	// Backend is where the counts are kept.
	Backend string `yaml:"backend" jsonschema:"enum=memory,enum=sql,default=memory"`
	// SQLDatabase is the database they are kept in. Without it, it is the server's own.
	SQLDatabase string `yaml:"sql_database" ref:"databases" only:"backend=sql"`
	// Limits are the limits; all of them hold.
	Limits []*Limit `yaml:"limits"`
}

// Limit is one limit.
type Limit struct {
	// Type is what is counted: tokens or requests.
	Type string `yaml:"type" jsonschema:"required,enum=token,enum=count"`
	// Window is the time after which the count starts again.
	Window string `yaml:"window" jsonschema:"required,enum=minute,enum=hour,enum=day,enum=week,enum=month"`
	// Limit is how much fits into one window.
	Limit int `yaml:"limit" jsonschema:"required,minimum=1"`
}

func (x *RateLimiting) check(c *checks, s spot) {
	c.notMySQL(s.child("sql_database"), x.SQLDatabase)
	if x.Enabled {
		c.needs(s, "limits")
	}
}
