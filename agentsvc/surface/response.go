package surface

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// minResponseRate is how many bytes a second of a large answer a client has to take on the whole, besides [taken]: one that takes every
// piece in time and no more would have the answer in memory for hours.
const minResponseRate = 128 << 10

// responseMemoryFactor is how many bytes of an app's memory a byte of what is read for an answer counts for: it is there as it was read, as
// text, and as it is written.
const responseMemoryFactor = 2

// responseDeadline returns until when an answer of n bytes must have been taken.
func responseDeadline(now time.Time, n int) time.Time {
	return now.Add(acceptTimeout + time.Duration(n)*time.Second/minResponseRate)
}

// writeDeadline returns until when the next piece of an answer must be taken.
func (rec *requestRecord) writeDeadline(piece time.Duration) time.Time {
	by := time.Now().Add(piece)
	if !rec.responseDeadline.IsZero() && rec.responseDeadline.Before(by) {
		return rec.responseDeadline
	}
	return by
}

// initResponseMemory has what is read and prepared for the caller count for an app, "" = the platform.
func (rec *requestRecord) initResponseMemory(s *Server, app db.ID) {
	rec.responseReservation.InitReservation(s.options.ResponseMemory, app, responseMemoryFactor)
}

// newPartReservation returns an empty hold for a part of what the visitor is answered, nil outside of a request.
func (v *Request) newPartReservation() *capacity.Reservation {
	if v.record == nil {
		return nil
	}
	return v.record.responseReservation.NewPart(1)
}

// reserveResponse waits until n bytes may be in memory for the answer that w is.
func reserveResponse(w http.ResponseWriter, n int) error {
	rec := unwrapRecord(w)
	if n <= capacity.FreeBytes || rec == nil {
		return nil
	}
	return rec.responseReservation.ReserveTotal(context.Background(), int64(n)) // it waits for a limited time
}

// unwrapRecord returns the record that w is or wraps, nil where there is none.
func unwrapRecord(w http.ResponseWriter) *requestRecord {
	for {
		switch to := w.(type) {
		case *requestRecord:
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
	record *requestRecord
}

// Value implements [context.Context].
func (c recordContext) Value(key any) any {
	switch key.(type) {
	case recordKey:
		return c.record
	case capacity.ContextKey:
		return &c.record.responseReservation
	}
	return c.Context.Value(key)
}
