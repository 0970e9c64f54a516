package retrieval

import (
	"context"
	"time"

	"stoa/agentsvc/trail"
)

// Outcome is how a search ended.
type Outcome string

// The outcomes of searches.
const (
	Complete Outcome = "complete"
	Degraded Outcome = "degraded" // a part was left out
	Failed   Outcome = "failed"   // the database did not answer, or the caller went away
)

// Part is a part of a search.
type Part string

// The parts of a search. Those that a search does not have take no time.
const (
	PartExpand  Part = "expand"  // models make up further wordings and a supposed answer
	PartEmbed   Part = "embed"   // the embedder makes vectors of the query
	PartVectors Part = "vectors" // the vectors are compared
	PartWords   Part = "words"   // the words are compared
	PartLoad    Part = "load"    // the texts of what was found are loaded
	PartRerank  Part = "rerank"  // a model puts the passages in order
)

// partSpans are the names of the spans of parts.
var partSpans = map[Part]string{
	PartExpand: "expand a query", PartEmbed: "embed a query", PartVectors: "search documents by vectors", PartWords: "search documents by words",
	PartLoad: "load passages", PartRerank: "rerank passages",
}

// Hooks are called about searches, from any goroutine. A nil one is not called.
type Hooks struct {
	// OnSearch is called when a search has ended, but not for a query that cannot be searched.
	OnSearch func(o Outcome, took time.Duration)
	// OnPart is called when a part of a search has ended.
	OnPart func(p Part, took time.Duration)
}

// runPart carries out a part of a search, with its span and duration.
func (x *search) runPart(ctx context.Context, p Part, f func(ctx context.Context) error) error {
	began := time.Now()
	ctx, span := trail.StartSpan(ctx, partSpans[p])
	err := f(ctx)
	trail.EndSpan(span, err)
	if hook := x.options.Hooks.OnPart; hook != nil {
		hook(p, time.Since(began))
	}
	return err
}

// reportEnd calls the hook about the end of a search that began at began.
func (x *search) reportEnd(began time.Time, err error) {
	hook := x.options.Hooks.OnSearch
	if hook == nil {
		return
	}
	o := Complete
	switch {
	case err != nil:
		o = Failed
	case x.notes.String() != "":
		o = Degraded
	}
	hook(o, time.Since(began))
}
