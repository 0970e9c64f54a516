package config

import (
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc/config/document"
)

// Server is the listener, TLS, CORS and authentication.
type Server struct {
	// Host is the address to listen on.
	Host string `yaml:"host" jsonschema:"default=0.0.0.0"`
	// Port is the HTTP port; 0 is any that is free.
	Port int `yaml:"port" jsonschema:"minimum=0,maximum=65535,default=8080"`
	// GRPCPort is the gRPC port; 0 is any that is free.
	GRPCPort int `yaml:"grpc_port" jsonschema:"minimum=0,maximum=65535,default=50051"`
	// Transport is the one that cards prefer. jsonrpc is another spelling of json-rpc.
	Transport string `yaml:"transport" jsonschema:"enum=json-rpc,enum=jsonrpc,enum=grpc,default=json-rpc"`
	// Provider says on the default card who offers these agents.
	Provider *Provider `yaml:"provider"`
	// PushNotifications lets callers of the official A2A surfaces register addresses for notifications of their tasks.
	PushNotifications bool `yaml:"push_notifications" jsonschema:"default=false"`
	// TLS encrypts connections in this process.
	TLS TLS `yaml:"tls"`
	// CORS says which web pages may call.
	CORS CORS `yaml:"cors"`
	// Auth says whose tokens are accepted.
	Auth Auth `yaml:"auth"`
	// Studio lets people with a role read and write this configuration.
	Studio Studio `yaml:"studio"`
}

// Provider says who offers the agents.
type Provider struct {
	// Org is the organisation.
	Org string `yaml:"org" jsonschema:"required"`
	// URL is its address on the web.
	URL string `yaml:"url"`
}

// TLS encrypts connections.
type TLS struct {
	// Enabled turns encryption on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// CertFile is the certificate's file, in PEM.
	CertFile string `yaml:"cert_file"`
	// KeyFile is the key's file, in PEM.
	KeyFile string `yaml:"key_file"`
}

// CORS says which web pages may call.
type CORS struct {
	// AllowedOrigins are the origins of these pages; * is all. Without this key the headers allow all, and what asks for
	// no credential may be used by pages of this server, of its public URL and of this machine only; agents may be found
	// by all.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// AllowedMethods are the methods they may use.
	AllowedMethods []string `yaml:"allowed_methods" jsonschema:"default=GET,default=POST,default=OPTIONS"`
	// AllowedHeaders are the headers they may send.
	AllowedHeaders []string `yaml:"allowed_headers" jsonschema:"default=Content-Type,default=Authorization"`
	// AllowCredentials lets them send cookies and client certificates. It needs origins that are named.
	AllowCredentials bool `yaml:"allow_credentials" jsonschema:"default=false"`
}

// Studio lets people with a role read and write the configuration.
type Studio struct {
	// Enabled turns it on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// AllowedRoles are the roles that may use it.
	AllowedRoles []string `yaml:"allowed_roles" jsonschema:"default=operator,default=admin"`
	// ConfigPath is the file that is written. Without it, it is the file that was read.
	ConfigPath string `yaml:"config_path"`
}

// checkRules normalises the two spellings of a transport.
func (s *Server) checkRules(*validation, document.Location) {
	if s.Transport == "jsonrpc" {
		s.Transport = "json-rpc"
	}
}

// checkRules checks that TLS has a certificate and a key.
func (t *TLS) checkRules(c *validation, s document.Location) {
	if t.Enabled {
		c.requireKeys(s, "cert_file", "key_file")
	}
}

// checkRules checks the form of origins, methods and headers. Browsers refuse credentials together with any origin
// (Fetch standard, CORS protocol).
func (cors *CORS) checkRules(c *validation, s document.Location) {
	for i, origin := range cors.AllowedOrigins {
		if origin != "*" && !isOrigin(origin) {
			c.addProblem(s.Child("allowed_origins").Item(i), "is no origin as browsers send it, such as https://app.example.com, and matches nothing")
		}
	}
	if cors.AllowCredentials && (cors.AllowedOrigins == nil || slices.Contains(cors.AllowedOrigins, "*")) {
		c.addProblem(s.Child("allow_credentials"), "needs allowed_origins that are named: browsers refuse it together with *")
	}
	for key, names := range map[string][]string{"allowed_methods": cors.AllowedMethods, "allowed_headers": cors.AllowedHeaders} {
		for i, name := range names {
			if !headerNameForm.MatchString(name) {
				c.addProblem(s.Child(key).Item(i), "is no name: a word without spaces")
			}
		}
	}
}

// isOrigin reports whether text is an origin as browsers send it (RFC 6454, 6.2): scheme and host in lower case, a
// port if it is not the scheme's default, and nothing else.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && text == strings.ToLower(u.Scheme+"://"+u.Host)
}
