package agentsvc

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

// FindingRecorder adds a finding to the turn that it was made in. It may be called from several goroutines. Nil records
// nothing.
type FindingRecorder func(Finding)

// Record passes f to r, if r is not nil.
func (r FindingRecorder) Record(f Finding) {
	if r != nil {
		r(f)
	}
}
