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
	Agent       string // the name it is addressed by
	Name        string // the name it is shown by
	Description string
	Version     string
	Visibility  Visibility
	InputModes  []string // media types
	OutputModes []string
	Streaming   bool
	Skills      []Skill
}

// Skill is one thing an agent can do.
type Skill struct {
	ID          string
	Name        string
	Description string
	Tags        []string
	Examples    []string
}
