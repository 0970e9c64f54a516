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

type findingRecorderKey struct{}

// WithFindingRecorder returns a context by which tell learns of the findings of a turn, as they come about and from any
// goroutine.
func WithFindingRecorder(ctx context.Context, record func(Finding)) context.Context {
	return context.WithValue(ctx, findingRecorderKey{}, record)
}

// RecordFinding tells of a finding whoever [WithFindingRecorder] has put into ctx, if anyone.
func RecordFinding(ctx context.Context, f Finding) {
	if record, ok := ctx.Value(findingRecorderKey{}).(func(Finding)); ok {
		record(f)
	}
}
