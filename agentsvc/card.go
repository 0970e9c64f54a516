package agentsvc

// Visibility says who may find an agent.
type Visibility string

// The visibilities of an agent: listed for everyone, for callers with a credential, for nobody.
const (
	Public   Visibility = "public"
	Internal Visibility = "internal"
	Private  Visibility = "private"
)

// Card describes an agent to those who may call it.
type Card struct {
	Agent             string // the name it is addressed by
	Name              string // the name it is shown by
	Description       string
	Version           string
	Visibility        Visibility
	InputModes        []string // media types
	OutputModes       []string
	Streaming         bool
	StandaloneReplies bool // it may answer with a message that stands alone
	Skills            []Skill
	Schemes           []Scheme // credentials that callers may show, by name
	RequiredSchemes   []string // names of those that they must, all of them
}

// Scheme is a kind of credential.
type Scheme struct {
	Name   string
	Header string // the header that holds an API key; "" = a bearer token stands in Authorization
	Format string // of a bearer token, for people
}

// Skill is one thing an agent can do.
type Skill struct {
	ID          string
	Name        string
	Description string
	Tags        []string
	Examples    []string
}
