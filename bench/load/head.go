package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
)

const statusOK = 200

// maxBody bounds an answer with a Content-Length.
const maxBody = 64 << 20

var errHead = errors.New("this is no answer of HTTP/1.1")

// head is what a client needs to know of an answer before its body.
type head struct {
	status int
	length int64 // of the body, -1 = unknown
	chunks bool  // the body comes in chunks; else, where its length is unknown, it ends with the connection
	last   bool  // the server closes the connection after it
}

// readHead reads the status line and the header. It allocates nothing, since it shares the processor with the server that
// is measured; of the headers it understands only the three fields that say where the answer ends.
func readHead(in *bufio.Reader) (head, error) {
	h := head{length: -1}
	line, err := in.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 {
		return h, fmt.Errorf("%w: %.80q", errHead, line)
	}
	n, ok := number(rest[:3], 999)
	if !ok {
		return h, fmt.Errorf("%w: %.80q", errHead, line)
	}
	h.status = int(n)
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return h, nil
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
}

func (h *head) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return fmt.Errorf("%w: %.80q", errHead, line)
	}
	value = bytes.TrimSpace(value)
	switch {
	case is(name, "Content-Length"):
		if h.length, ok = number(value, maxBody); !ok {
			return fmt.Errorf("%w: a length of %.80q", errHead, value)
		}
	case is(name, "Transfer-Encoding"):
		h.chunks = is(value, "chunked")
	case is(name, "Connection"):
		h.last = is(value, "close")
	}
	return nil
}

// is compares without regard to case; before it looks closer, by length.
func is(got []byte, want string) bool {
	return len(got) == len(want) && bytes.EqualFold(got, []byte(want))
}

// number reads digits, of which there is at least one, up to most.
func number(digits []byte, most int64) (n int64, ok bool) {
	for _, c := range digits {
		if c < '0' || c > '9' || n > most {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(digits) > 0 && n <= most
}

// body returns what follows the head where its length is unknown.
func (h head) body(in *bufio.Reader) io.Reader {
	if !h.chunks {
		return in
	}
	return &chunked{in: in, data: httputil.NewChunkedReader(in)}
}

// chunked is a body in chunks, and the trailer behind it, so that the next answer is read from its beginning.
type chunked struct {
	in   *bufio.Reader
	data io.Reader
	over bool
}

func (c *chunked) Read(p []byte) (int, error) {
	n, err := c.data.Read(p)
	if !errors.Is(err, io.EOF) || c.over {
		return n, err
	}
	for c.over = true; ; {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return n, io.ErrUnexpectedEOF
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return n, io.EOF
		}
	}
}
