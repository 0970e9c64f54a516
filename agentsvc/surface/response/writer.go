// Package response writes HTTP responses: [Writer] is the ResponseWriter of each request, and functions such as
// [WriteJSON] write a body through it. A response is in memory for as long as its client takes it, so its memory is
// reserved before it is written, each piece has a deadline, and a large response has one for the whole.
package response

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// Writer is the ResponseWriter of one request. The handler's goroutine writes it.
type Writer struct {
	http.ResponseWriter
	// Status is the status that was sent, 0 = none yet. Once it is set an error can only be logged.
	Status int
	// RequestBytes is the size of the request's JSON body, see collectThreshold.
	RequestBytes int
	// Memory is for the memory of what is read and encoded for the response. [Writer.InitMemory] initializes it;
	// it is released with the response.
	Memory capacity.MemoryReservation

	// deadline is when the client must have taken all of a large response; zero = it is small or a stream.
	deadline time.Time
	// pieceTimeout is the deadline of each write on HTTP/2; 0 = HTTP/1, where only large responses and streams need
	// one.
	pieceTimeout time.Duration
}

// Init makes w write the response to r. pieceTimeout is how long a client of HTTP/2 may take to accept one piece. On
// HTTP/1 the kernel's buffer takes a small response at once, whether or not the client reads.
func (w *Writer) Init(to http.ResponseWriter, r *http.Request, pieceTimeout time.Duration) {
	w.ResponseWriter = to
	if r.ProtoMajor > 1 {
		w.pieceTimeout = pieceTimeout
	}
}

// WriteHeader records the first status and passes it on.
func (w *Writer) WriteHeader(status int) {
	if w.Status == 0 {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write records that there is a response and passes b on. On HTTP/2 it sets a deadline: the client's flow control
// window may be closed, so even a small write can block.
func (w *Writer) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.Status = http.StatusOK
	}
	if w.pieceTimeout > 0 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(w.writeDeadline(w.pieceTimeout))
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// minRate is how many bytes a second a client must take of a large response on the whole. Without it a client that
// takes each piece just before its deadline would keep the response in memory for hours.
const minRate = 128 << 10

// memoryFactor is how many bytes of the memory pool a byte that is read for a response counts for: it is in memory as
// it was read, as text, and as it is written.
const memoryFactor = 2

// InitMemory makes the memory of the response count for app, "" = the platform; pool = nil does not bound it. Before it
// is called nothing counts.
func (w *Writer) InitMemory(pool *capacity.Pool, app db.ID) {
	w.Memory.InitReservation(pool, app, memoryFactor)
}

// responseDeadline returns when a client must have taken a response of n bytes: acceptTimeout, and the time at minRate.
func responseDeadline(now time.Time, n int) time.Time {
	return now.Add(acceptTimeout + time.Duration(n)*time.Second/minRate)
}

// writeDeadline returns the deadline of a write that may take timeout piece: never later than that of the whole
// response.
func (w *Writer) writeDeadline(piece time.Duration) time.Time {
	by := time.Now().Add(piece)
	if !w.deadline.IsZero() && w.deadline.Before(by) {
		return w.deadline
	}
	return by
}

// reserve waits until n bytes of the response that to writes may be in memory. It returns [capacity.ErrFull] or a
// [agentsvc.CodeTooLarge]. Small responses cost nothing.
func reserve(to http.ResponseWriter, n int) error {
	w := unwrapWriter(to)
	if n <= capacity.FreeBytes || w == nil {
		return nil
	}
	return w.Memory.ReserveTotal(context.Background(), int64(n)) // waits for capacity.MaxWait at most
}

// unwrapWriter returns the Writer that w is or wraps, nil if there is none.
func unwrapWriter(w http.ResponseWriter) *Writer {
	for {
		switch to := w.(type) {
		case *Writer:
			return to
		case interface{ Unwrap() http.ResponseWriter }:
			w = to.Unwrap()
		default:
			return nil
		}
	}
}
