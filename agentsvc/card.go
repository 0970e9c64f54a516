package agentsvc

// Visibility is for whom an agent exists: for the others, requests to it are answered as if there were no such agent.
type Visibility string

// The visibilities: visible to every caller, to authenticated callers, and to no caller; other agents of the tenant
// can always use it.
const (
	Public   Visibility = "public"
	Internal Visibility = "internal"
	Private  Visibility = "private"
)

// Card describes an agent to its callers, as the A2A agent card does.
type Card struct {
	Agent             string // the name in addresses
	Name              string // the name for display
	Description       string
	Version           string
	Visibility        Visibility
	InputModes        []string // media types that it accepts
	OutputModes       []string
	Streaming         bool
	StandaloneReplies bool // it may answer with a message that needs no task (see [Message].Standalone)
	Skills            []Skill
	Schemes           []Scheme // credentials that callers may present
	RequiredSchemes   []string // names of the schemes that every caller must present
}

// Scheme is a kind of credential that a surface accepts.
type Scheme struct {
	Name   string
	Header string // the header with an API key; "" = a bearer token in Authorization
	Format string // of a bearer token, for documentation only
}

// Skill is one capability that an agent advertises.
type Skill struct {
	ID          string
	Name        string
	Description string
	Tags        []string
	Examples    []string
}
