package surface

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// slowest is how many bytes a second of a large answer a client has to take on the whole, besides [taken]: one that takes every
// piece in time and no more would have the answer in memory for hours.
const slowest = 128 << 10

// answerFactor is how many bytes of an app's memory a byte of what is read for an answer counts for: it is there as it was read, as
// text, and as it is written.
const answerFactor = 2

// wholeBy returns until when an answer of n bytes must have been taken.
func wholeBy(now time.Time, n int) time.Time {
	return now.Add(taken + time.Duration(n)*time.Second/slowest)
}

// deadline returns until when the next piece of an answer must be taken.
func (rec *record) deadline(piece time.Duration) time.Time {
	by := time.Now().Add(piece)
	if !rec.until.IsZero() && rec.until.Before(by) {
		return rec.until
	}
	return by
}

// answers has what is read and prepared for the caller count for an app, "" = the platform.
func (rec *record) answers(s *Server, app db.ID) {
	rec.answer.Init(s.options.Answers, app, answerFactor)
}

// holdBeside returns an empty hold for a part of what the visitor is answered, nil outside of a request.
func (v *Visit) holdBeside() *capacity.Hold {
	if v.rec == nil {
		return nil
	}
	return v.rec.answer.Beside(1)
}

// hasRoom waits until n bytes may be in memory for the answer that w is.
func hasRoom(w http.ResponseWriter, n int) error {
	rec := recordIn(w)
	if n <= capacity.Free || rec == nil {
		return nil
	}
	return rec.answer.Reach(context.Background(), int64(n)) // it waits for a limited time
}

// recordIn returns the record that w is or wraps, nil where there is none.
func recordIn(w http.ResponseWriter) *record {
	for {
		switch to := w.(type) {
		case *record:
			return to
		case interface{ Unwrap() http.ResponseWriter }:
			w = to.Unwrap()
		default:
			return nil
		}
	}
}

// recordContext is the context of a request: it knows the record, and what the answer has in memory.
type recordContext struct {
	context.Context
	rec *record
}

// Value implements [context.Context].
func (c recordContext) Value(key any) any {
	switch key.(type) {
	case recordKey:
		return c.rec
	case capacity.Key:
		return &c.rec.answer
	}
	return c.Context.Value(key)
}
