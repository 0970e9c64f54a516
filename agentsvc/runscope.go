package agentsvc

// RunScope is what the calls of models, tools and agents have in common that are made for one run: whose session they
// belong to, the lease that permits their effects, and where their usage and findings are recorded. The runner makes it,
// and it is passed on with each call. The zero value is that of a call outside of a run.
type RunScope struct {
	// Session is the session of the turn. Its owner is the caller on whose behalf tools act. The zero value means that
	// there is none.
	Session SessionKey
	// Roles are those of the owner when the turn was accepted. They decide which documents tools read for the owner.
	Roles []string
	Lease LeaseCheck
	// Usage records what model calls use, and identifies the run for budgets; nil: nothing is recorded.
	Usage *UsageRecorder
	// Findings records what guardrails find; nil: nothing is recorded.
	Findings FindingRecorder
	// Sources numbers the passages of documents that the turn's models are given; nil: they are numbered from 1.
	Sources SourceRecorder
}

// Payer is the agent and the owner that usage is counted for.
type Payer struct {
	Agent string // the task's own agent, "" outside of a run
	Owner Owner
	// Defer, if not nil, carries out a write of usage while its caller goes on. The one that sets it waits for the write before it
	// answers, so that no answer is without its usage.
	Defer func(write func())
}

// Payer returns who pays for the calls of the run. Without a run it is the owner of the session.
func (s RunScope) Payer() Payer {
	if s.Usage != nil {
		return Payer{Agent: s.Usage.Agent, Owner: s.Usage.Owner}
	}
	return Payer{Owner: s.Session.Owner}
}
