package config

import (
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc/config/document"
)

// Security names the credentials that callers of an agent need in addition to the app's. The agent's card shows
// them.
type Security struct {
	// Schemes are the kinds of credential, by name.
	Schemes map[string]*SecurityScheme `yaml:"schemes"`
	// Require are the schemes a caller must satisfy, all of them.
	Require []string `yaml:"require"`
}

// SecurityScheme is one kind of credential.
type SecurityScheme struct {
	// Type is the place of the credential: the Authorization header (http), or a header of its own (apiKey).
	Type string `yaml:"type" jsonschema:"required,enum=http,enum=apiKey"`
	// Scheme is the scheme of the Authorization header.
	Scheme string `yaml:"scheme" jsonschema:"enum=bearer,default=bearer" only:"type=http"`
	// BearerFormat describes the token to callers, such as JWT.
	BearerFormat string `yaml:"bearer_format" only:"type=http"`
	// Name is the header that holds an API key of the app.
	Name string `yaml:"name" only:"type=apiKey"`
	// In is the place of the API key.
	In string `yaml:"in" jsonschema:"enum=header,default=header" only:"type=apiKey"`
}

// Credentials are sent to a remote agent.
type Credentials struct {
	// Type is the kind of credential.
	Type string `yaml:"type" jsonschema:"enum=bearer,default=bearer"`
	// Token is the bearer token.
	Token string `yaml:"token" jsonschema:"required" secret:"true"`
}

// checkRules checks that the required schemes exist.
func (sec *Security) checkRules(c *validation, s document.Location) {
	names := slices.Sorted(maps.Keys(sec.Schemes))
	at := s.Child("require")
	for i, name := range sec.Require {
		c.checkReference(at.Item(i), "security.schemes", name, names)
	}
}

// checkRules checks the header of an API key.
func (ss *SecurityScheme) checkRules(c *validation, s document.Location) {
	switch {
	case ss.Type != "apiKey":
	case !c.doc.HasValue(s.Value, "name"):
		c.addProblem(s, "an apiKey scheme needs name, the header that holds the key")
	case !headerNameForm.MatchString(ss.Name):
		c.addProblem(s.Child("name"), "is no name of a header")
	case slices.Contains(nonKeyHeaders, strings.ToLower(ss.Name)):
		c.addProblem(s.Child("name"), "has a meaning of its own: choose another header, such as X-API-Key")
	}
}

// nonKeyHeaders are headers that cannot contain an API key: they belong to bearer tokens or to the connection.
var nonKeyHeaders = []string{"authorization", "host", "content-type", "content-length", "connection", "cookie"}
