package agent

import (
	"io"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
)

// fileFactor is how much larger the files, data and text of one turn of a remote agent may be together than the text
// alone, as it is for models. It is also the factor of a whole HTTP response to these: base64 takes a third more.
const (
	fileFactor     = 4
	responseFactor = 2
)

// eventOverhead is what each event counts in addition to its content, in bytes. It bounds the events without content.
const eventOverhead = 256

// receivedAnswer counts what a remote agent sent in one turn.
type receivedAnswer struct {
	// maxText bounds the bytes of text.
	maxText int
	// text counts bytes of text, total those of everything, with eventOverhead.
	text, total int64
	// exceeded reports that a bound was exceeded.
	exceeded bool
}

// newReceivedAnswer returns a count for one turn.
func newReceivedAnswer(o RemoteOptions) receivedAnswer {
	return receivedAnswer{maxText: llm.Request{MaxBytes: o.MaxBytes}.ByteLimit()}
}

// add counts parts. Beyond a bound it returns an error with [agentsvc.CodeInvalid].
func (a *receivedAnswer) add(agent string, parts []agentsvc.Part) error {
	for _, p := range parts {
		if isPlainText(p) {
			a.text += int64(len(p.Text))
		}
	}
	a.total += agentsvc.Event{Message: &agentsvc.Message{Parts: parts}}.ByteSize()
	return a.check(agent)
}

// addEvent counts an event without its content, like add.
func (a *receivedAnswer) addEvent(agent string) error {
	a.total += eventOverhead
	return a.check(agent)
}

// check returns an error beyond a bound.
func (a *receivedAnswer) check(agent string) error {
	switch {
	case a.text > int64(a.maxText):
		a.exceeded = true
		return agentsvc.NewInvalidError("", "the remote agent %s sent more than %d MiB of text, which one answer may have", agent, a.maxText>>20)
	case a.total > int64(a.maxText)*fileFactor:
		a.exceeded = true
		return agentsvc.NewInvalidError("", "the remote agent %s sent more than %d MiB of text, files and events, which one answer may have", agent, a.maxText*fileFactor>>20)
	}
	return nil
}

// limitTransport bounds the body of each response, in bytes.
type limitTransport struct {
	next http.RoundTripper
	max  int64
}

// RoundTrip implements [http.RoundTripper].
func (l limitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil {
		resp.Body = &limitedBody{ReadCloser: resp.Body, limit: l.max, rest: l.max}
	}
	return resp, err
}

// limitedBody is a body that ends with an [*egress.TooLargeError] after limit bytes; rest of them are left.
type limitedBody struct {
	io.ReadCloser
	limit, rest int64
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.rest -= int64(n); b.rest < 0 {
		return 0, &egress.TooLargeError{Max: b.limit}
	}
	return n, err
}
