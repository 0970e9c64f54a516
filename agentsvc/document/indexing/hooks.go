package indexing

import "time"

// Outcome is what became of a document that was worked on.
type Outcome string

// The outcomes of documents.
const (
	OutcomeIndexed   Outcome = "indexed"
	OutcomeFailed    Outcome = "failed"    // for good, until its content or the store's settings change
	OutcomePostponed Outcome = "postponed" // tried again later
	OutcomeRemoved   Outcome = "removed"   // the source no longer has it
)

// PassOutcome is how a pass over a store ended.
type PassOutcome string

// The outcomes of passes.
const (
	PassCompleted PassOutcome = "completed" // nothing is left to do
	PassYielded   PassOutcome = "yielded"   // its time was over; it goes on when others had their turn
	PassHeld      PassOutcome = "held"      // something that all documents need does not answer; it goes on later
	PassEnded     PassOutcome = "ended"     // the process or the app stops, or the lease is lost
)

// Hooks are called about what an indexer does, from any goroutine. A nil one is not called. app is the app's name.
type Hooks struct {
	// OnDocument is called when a document has been worked on, with the chunks that it has now.
	OnDocument func(app string, o Outcome, chunks int)
	// OnStep is called with the duration of a step of a document's indexing.
	OnStep func(step string, took time.Duration)
	// OnPass is called when a pass has ended.
	OnPass func(app string, o PassOutcome, took time.Duration)
}

// withDefaults returns h with functions without effect in the place of nil.
func (h Hooks) withDefaults() Hooks {
	if h.OnDocument == nil {
		h.OnDocument = func(string, Outcome, int) {}
	}
	if h.OnStep == nil {
		h.OnStep = func(string, time.Duration) {}
	}
	if h.OnPass == nil {
		h.OnPass = func(string, PassOutcome, time.Duration) {}
	}
	return h
}
