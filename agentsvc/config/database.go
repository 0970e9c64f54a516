package config

import (
	"strings"

	"stoa/agentsvc/config/document"
)

// Database is a connection to a SQL database.
type Database struct {
	// Driver is the kind of database. mysql can only be a source of documents.
	Driver string `yaml:"driver" jsonschema:"required,enum=postgres,enum=mysql,enum=sqlite"`
	// Host is the machine it runs on.
	Host string `yaml:"host" only:"driver=postgres|mysql"`
	// Port is the port it listens on. Without it, postgres 5432, mysql 3306.
	Port int `yaml:"port" jsonschema:"minimum=0,maximum=65535" only:"driver=postgres|mysql"`
	// Database is the database's name, or the file's path for sqlite.
	Database string `yaml:"database" jsonschema:"required"`
	// Username is the login.
	Username string `yaml:"username" only:"driver=postgres|mysql"`
	// Password is the login's password.
	Password string `yaml:"password" secret:"true" to:"driver,host,port,ssl_mode" only:"driver=postgres|mysql"`
	// SSLMode says whether and how the connection is encrypted. For mysql, allow does the same as prefer.
	SSLMode string `yaml:"ssl_mode" jsonschema:"enum=disable,enum=allow,enum=prefer,enum=require,enum=verify-ca,enum=verify-full,default=disable" only:"driver=postgres|mysql"`
	// MaxConns is how many connections are open at most.
	MaxConns int `yaml:"max_conns" jsonschema:"minimum=1,default=25"`
	// MaxIdle is how many connections stay open unused.
	MaxIdle int `yaml:"max_idle" jsonschema:"minimum=0,default=5"`
}

// checkRules checks the address. A sqlite file of a tenant needs two grants: sqlite, and filesystem for the folder. A
// host must be a single name, because drivers would read a list of hosts or a socket's path.
func (d *Database) checkRules(c *validation, s document.Location) {
	switch {
	case d.Driver == "sqlite":
		c.requireGrant(s.Child("driver"), "sqlite")
		c.requireGrant(s.Child("database"), "filesystem")
		c.requireGrantedPath(s.Child("database"), "filesystem", d.Database)
		if d.Database == ":memory:" {
			c.addProblem(s.Child("database"), "is no file: what need not outlive the process is kept by storage.sessions.backend: inmemory")
		}
	case d.Driver != "":
		c.checkHost(s, d.Host)
	}
}

// checkHost checks the key host of the mapping at s, which is needed.
func (val *validation) checkHost(s document.Location, host string) {
	switch {
	case !val.doc.HasValue(s.Value, "host"):
		val.addProblem(s, "host is needed")
	case !val.doc.IsFromVariable(s.Child("host").Value) && strings.ContainsAny(host, "/,@ \\"):
		val.addProblem(s.Child("host"), "must be the name or the address of one machine")
	}
}
