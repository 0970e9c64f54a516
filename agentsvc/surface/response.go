package surface

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// minResponseRate is how many bytes a second a client must take of a large response on the whole. Without it a client
// that takes each piece just before its deadline would keep the response in memory for hours.
const minResponseRate = 128 << 10

// responseMemoryFactor is how many bytes of the memory pool a byte that is read for a response counts for: it is in
// memory as it was read, as text, and as it is written.
const responseMemoryFactor = 2

// responseDeadline returns when a client must have taken a response of n bytes: acceptTimeout, and the time at
// minResponseRate.
func responseDeadline(now time.Time, n int) time.Time {
	return now.Add(acceptTimeout + time.Duration(n)*time.Second/minResponseRate)
}

// writeDeadline returns the deadline of a write that may take timeout piece: never later than that of the whole
// response.
func (rec *requestRecord) writeDeadline(piece time.Duration) time.Time {
	by := time.Now().Add(piece)
	if !rec.responseDeadline.IsZero() && rec.responseDeadline.Before(by) {
		return rec.responseDeadline
	}
	return by
}

// initResponseMemory makes the memory of the response count for app, "" = the platform. Before it is called nothing
// counts.
func (rec *requestRecord) initResponseMemory(s *Server, app db.ID) {
	rec.responseReservation.InitReservation(s.options.ResponseMemory, app, responseMemoryFactor)
}

// newPartReservation returns a reservation of the response's memory for a part that ends before the response does, nil
// outside of a request. The caller releases it.
func (v *Request) newPartReservation() *capacity.Reservation {
	if v.record == nil {
		return nil
	}
	return v.record.responseReservation.NewPart(1)
}

// reserveResponse waits until n bytes of the response that w writes may be in memory. It returns [capacity.ErrFull] or
// a [*capacity.TooLargeError]. Small responses cost nothing.
func reserveResponse(w http.ResponseWriter, n int) error {
	rec := unwrapRecord(w)
	if n <= capacity.FreeBytes || rec == nil {
		return nil
	}
	return rec.responseReservation.ReserveTotal(context.Background(), int64(n)) // waits for capacity.MaxWait at most
}

// unwrapRecord returns the record that w is or wraps, nil if there is none.
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

// recordContext is the context of a request. One type carries the record and the response's memory reservation, which
// saves a context for each.
type recordContext struct {
	context.Context
	record *requestRecord
}

// Value implements [context.Context]. It answers capacity.ContextKey, so that packages which read large rows find the
// request's reservation.
func (c recordContext) Value(key any) any {
	switch key.(type) {
	case recordKey:
		return c.record
	case capacity.ContextKey:
		return &c.record.responseReservation
	}
	return c.Context.Value(key)
}
