package agentsvc

import "context"

// Finding says that a check of a guardrail has struck in a turn, and what came of it. It holds nothing of what it
// struck at.
type Finding struct {
	Guardrail string
	Phase     string // input, output or tool
	Rule      string // of that phase
	Action    string
	Severity  string
	Shadow    bool // the action is what would have happened
}

type findingsKey struct{}

// WithFindings returns a context by which tell learns of the findings of a turn, as they come about and from any
// goroutine.
func WithFindings(ctx context.Context, tell func(Finding)) context.Context {
	return context.WithValue(ctx, findingsKey{}, tell)
}

// Found tells of a finding whoever [WithFindings] has put into ctx, if anyone.
func Found(ctx context.Context, f Finding) {
	if tell, ok := ctx.Value(findingsKey{}).(func(Finding)); ok {
		tell(f)
	}
}
