package main

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"strings"
)

// readEvents reads a stream of server-sent events (WHATWG HTML, 9.2.6) and yields the data of each event, its lines
// joined by line feeds. Comments and events without data are skipped. An error is the last value yielded; the end of
// the stream is not an error.
func readEvents(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lines := bufio.NewReader(r)
		var data []string
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield("", err)
				}
				// WHATWG HTML 9.2.6: an incomplete event at the end is discarded
				return
			}
			// Lines may end in LF or CRLF.
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				if data != nil && !yield(strings.Join(data, "\n"), nil) {
					return
				}
				data = nil
				continue
			}
			// Other fields (id, event, retry) and comments are not needed here: stoa call does not resume.
			if field, value, _ := strings.Cut(line, ":"); field == "data" {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
	}
}
