package load

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestReadHead(t *testing.T) {
	t.Parallel()
	const begin = "HTTP/1.1 200 OK\r\n"
	tests := []struct {
		name, text string
		want       head
		bad        bool
	}{
		{name: "sized", text: begin + "content-length: 12\r\n\r\n", want: head{status: 200, length: 12}},
		{name: "chunked", text: begin + "X-Other: a: b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", want: head{status: 200, length: -1, chunks: true, last: true}},
		{name: "neither", text: "HTTP/1.1 503 No\n\n", want: head{status: 503, length: -1}},
		{name: "other protocol", text: "HTTP/1.0 200 OK\r\n\r\n", bad: true},
		{name: "no status", text: "HTTP/1.1 2x0 OK\r\n\r\n", bad: true},
		{name: "no field", text: begin + "nothing\r\n\r\n", bad: true},
		{name: "no length", text: begin + "Content-Length: -1\r\n\r\n", bad: true},
		{name: "too long", text: begin + "Content-Length: 99999999999999999999\r\n\r\n", bad: true},
		{name: "cut off", text: begin, bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := readHead(bufio.NewReader(strings.NewReader(tt.text)))
			if (err != nil) != tt.bad || err == nil && got != tt.want {
				t.Errorf("readHead = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// The answer that follows one in chunks is read from its beginning.
func TestChunkedBodyEndsBehindItsTrailer(t *testing.T) {
	t.Parallel()
	in := bufio.NewReader(strings.NewReader("3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\nHTTP/1.1"))
	body, err := io.ReadAll(head{length: -1, chunks: true}.body(in))
	if err != nil || string(body) != "abc" {
		t.Fatalf("body = %q, %v", body, err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "HTTP/1.1" {
		t.Errorf("%q follows the answer", rest)
	}
}
