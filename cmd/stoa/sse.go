package main

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"strings"
)

// readEvents reads a stream of server-sent events (WHATWG HTML, 9.2.6) and yields the data of each. Comments and
// events without data are passed over. An error is the last thing yielded; the end of the stream is none.
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
				return // an event that the end cut off does not count
			}
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				if data != nil && !yield(strings.Join(data, "\n"), nil) {
					return
				}
				data = nil
				continue
			}
			if field, value, _ := strings.Cut(line, ":"); field == "data" {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
	}
}
