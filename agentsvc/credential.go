package agentsvc

// Credential names what a caller entrusts to a tool: the value of a header that the tool's requests to Server, an origin
// such as https://api.example.com, carry. The value itself is in no word of this room.
type Credential struct {
	Tool   string // by which the configuration names it
	Header string
	Server string
}
