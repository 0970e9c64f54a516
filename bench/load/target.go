// Package load drives an HTTP server in a closed loop: every connection sends its next call when the answer
// to the one before has arrived. It writes prepared bytes and reads answers line by line, so that it takes
// little of the processor that it shares with the server under test.
package load

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
)

// Target is one HTTP request and what a good answer to it looks like. Build it with [NewTarget].
type Target struct {
	addr    string
	request []byte
	want    []byte
	first   []byte
	stamped bool
}

// Spec says what a target sends and expects.
type Spec struct {
	URL    string            // http only
	Header map[string]string // besides Host, Content-Type and Content-Length
	Body   []byte            // nil: a GET, else a POST

	// Want must stand in one line of every good answer; an answer without it counts as an error.
	Want string
	// First marks the line of a streamed answer whose arrival is the first token. Empty: the first line.
	First string
	// Stamped says that behind First stands when the token was sent, in microseconds since 1970. Then that is when the
	// time to the first token begins.
	Stamped bool
}

// NewTarget prepares s for sending. It fails if the URL is not a plain http one.
func NewTarget(s Spec) (Target, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return Target{}, fmt.Errorf("parse the target's URL: %w", err)
	}
	if u.Scheme != "http" || u.Host == "" {
		return Target{}, fmt.Errorf("target %q: only http://host:port/path can be driven", s.URL)
	}
	var b bytes.Buffer
	if s.Body == nil {
		fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", u.RequestURI(), u.Host)
	} else {
		fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
			u.RequestURI(), u.Host, len(s.Body))
	}
	names := make([]string, 0, len(s.Header))
	for name := range s.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s: %s\r\n", name, s.Header[name])
	}
	b.WriteString("\r\n")
	b.Write(s.Body)
	return Target{addr: u.Host, request: b.Bytes(), want: []byte(s.Want), first: []byte(s.First), stamped: s.Stamped}, nil
}
