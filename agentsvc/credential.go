package agentsvc

// Credential identifies a credential that a user supplies for a tool: the value of Header in the tool's requests to
// Server. The value itself is in no domain type; only vault.Vault seals and opens it.
type Credential struct {
	Tool   string // the tool's name in the configuration
	Header string
	// Server is an origin, such as https://api.example.com.
	Server string
}
