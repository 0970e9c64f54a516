package stream

import (
	"cmp"
	"errors"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/sse"
)

// WriteSSE writes the events as server-sent events (WHATWG HTML, 9.2) and closes s. It returns when the events
// end, the client disconnects or does not take an event within PieceTimeout, its access is revoked, or the server ends
// its streams.
//
// A client that reads slowly blocks only the goroutine of this call, in a write of at most PieceTimeout. It costs the
// event that is being written, of which all above 64 KiB is reserved from the app's memory (sse.Options.Memory, which
// may take 10 s), and what it has taken to write next: a few of the task's recent events, which package task bounds
// (maxTakenEvents, maxTakenBytes), or a page of the log. Recent events that it does not take in time are dropped and it
// reads the log, so the run that writes the events never waits.
//
// A fact has its sequence as id, a delta has none: a client that reconnects with Last-Event-ID gets every fact after
// it, and deltas that it lost are contained in the fact that follows them. Where the server ends its streams, or the
// log cannot be read at present, a resumable stream ends with "retry: 1000", which makes an EventSource reconnect after
// a second. WriteSSE returns no error if the client disconnected or the server ends its streams. Any other error is
// returned for the log.
func (s *Subscription) WriteSSE(w http.ResponseWriter, d Encoder, o sse.Options) error {
	defer s.Close()
	out := sse.Open(w, o, func(err error) { s.cancel(err) })
	defer out.Close()
	err := s.WriteEvents(d, func(seq int64, body any) error {
		if d.NotResumable {
			seq = 0
		}
		return out.WriteEvent(d.eventName(d.EventName, body), seq, body)
	})
	switch {
	case err == nil:
		writeDone(out, d)
	case errors.Is(err, ErrClientGone):
		return nil // the client can resume after the last id that it got
	case errors.Is(err, ErrStreamsEnding) && d.NotResumable:
		writeError(out, d, d.EventName, apierror.ErrNotReady)
		return nil
	// The client reconnects to another process, which has the same log.
	case errors.Is(err, ErrStreamsEnding):
		out.WriteRetry()
		return nil
	// The log may be readable again in a second, here or in another process.
	case (apierror.Classify(err).Code == apierror.Unavailable || errors.Is(err, agentsvc.CodeBusy)) && !d.NotResumable:
		out.WriteRetry()
	// 200 has been sent, so the error can only be an event.
	default:
		writeError(out, d, cmp.Or(d.ErrorEventName, d.EventName), err)
	}
	return err
}

func writeError(out *sse.Writer, d Encoder, name string, err error) {
	body := d.EncodeError(err)
	_ = out.WriteEvent(d.eventName(name, body), 0, body)
}

// writeDone writes the event that marks the regular end of the stream, if the protocol has one.
func writeDone(out *sse.Writer, d Encoder) {
	if d.DoneBody == nil {
		return
	}
	name := ""
	if d.EventName != "" {
		name = "done"
	}
	_ = out.WriteEvent(name, 0, d.DoneBody)
}
