package agentsvc

import "context"

// Finding reports that a rule of a guardrail matched during a turn, and the action that followed. It contains nothing
// of the text that matched, so it can be stored and shown.
type Finding struct {
	Guardrail string
	Phase     string // input, output or tool
	Rule      string // name of the rule within the phase
	Action    string
	Severity  string
	Shadow    bool // the action was not carried out, only recorded
}

// findingRecorderKey is the context key of WithFindingRecorder.
type findingRecorderKey struct{}

// WithFindingRecorder returns a context in which [RecordFinding] calls record. It may be called from several
// goroutines.
func WithFindingRecorder(ctx context.Context, record func(Finding)) context.Context {
	return context.WithValue(ctx, findingRecorderKey{}, record)
}

// RecordFinding passes a finding to the recorder of ctx. Without one it does nothing.
func RecordFinding(ctx context.Context, f Finding) {
	if record, ok := ctx.Value(findingRecorderKey{}).(func(Finding)); ok {
		record(f)
	}
}
