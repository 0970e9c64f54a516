package response

import (
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient is a connection whose client takes each piece of a response after delay.
type slowClient struct {
	*httptest.ResponseRecorder
	delay    time.Duration
	deadline time.Time
	pieces   int
}

func (c *slowClient) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *slowClient) Write(b []byte) (int, error) {
	if left := time.Until(c.deadline); left < c.delay {
		time.Sleep(left)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(c.delay)
	c.pieces++
	return len(b), nil
}

// TestSlowReader checks that a client which takes each piece of a response just in time has a bounded time for the
// whole.
func TestSlowReader(t *testing.T) {
	const size = 4 << 20
	for name, tt := range map[string]struct {
		each  time.Duration
		whole bool // the client gets the whole response
		most  time.Duration
	}{
		"just in time for a piece":         {29 * time.Second, false, 30*time.Second + size/(128<<10)*time.Second},
		"a megabit a second":               {time.Second / 2, true, 33 * time.Second},
		"HTTP/2, just in time for a piece": {29 * time.Second, false, 30*time.Second + size/(128<<10)*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &slowClient{ResponseRecorder: httptest.NewRecorder(), delay: tt.each}
				rec := &Writer{ResponseWriter: c}
				if name[0] == 'H' {
					rec.pieceTimeout = 30 * time.Second
				}
				began := time.Now()
				WritePieces(rec, make([]byte, size))
				if took := time.Since(began); took > tt.most || (c.pieces == size/pieceSize) != tt.whole {
					t.Errorf("%d of %d pieces in %v, want at most %v", c.pieces, size/pieceSize, took, tt.most)
				}
			})
		})
	}
}
