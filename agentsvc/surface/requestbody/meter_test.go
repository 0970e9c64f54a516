package requestbody

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"stoa/agentsvc/surface/decode"
	"stoa/tenancy/db"
)

// TestRefusedBodyStopsBeingRead checks that a body which is refused for its content is not read to its end, and that it
// costs its app as much as one that is accepted.
func TestRefusedBodyStopsBeingRead(t *testing.T) {
	t.Parallel()
	source := strings.NewReader(`{"params":{"message":{"metadata":{"list":[` + strings.Repeat("{},", 1<<20) + `{}]}}}}`)
	in := &decode.CountingReader{Reader: source}
	a := newTestMeter(t, "acme")
	_, err := readMetered(in, int64(source.Len()), MaxMessage, a)
	if err == nil || in.Refused == nil || source.Len() < 2<<20 {
		t.Errorf("%v, refused %v, %d bytes are left", err, in.Refused, source.Len())
	}
	before := a.rates.chargeApp("acme", 2*bodyBurst*DefaultRate)
	a.chargeRefused(decode.MaxValues)
	if more := a.rates.chargeApp("acme", 0) - before; more < valueCost*decode.MaxValues*time.Second/DefaultRate/2 {
		t.Errorf("a refused body costs %v", more)
	}
	a.reservation.release()
}

// newTestMeter returns the meter of a body with a budget of its own.
func newTestMeter(t testing.TB, app db.ID) *meter {
	return newMeter(t.Context(), NewBudget(nil, DefaultRate), app, &bodyReservation{}, func() {})
}

// TestTakeBody checks that an announced size allocates nothing before the bytes arrive, and that a body which is not
// small reserves memory for what has arrived.
func TestTakeBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length, size, most int64
		reserves           bool // it reserves memory in the pool
	}{
		{0, 0, MaxBody, false}, {10, 10, MaxBody, false}, {10, -1, MaxBody, false}, {smallBodyBytes, smallBodyBytes, MaxBody, false}, {smallBodyBytes - 1, -1, MaxBody, false},
		{smallBodyBytes + 1, smallBodyBytes + 1, MaxBody, true}, {smallBodyBytes + 1, -1, MaxBody, true}, {MaxBody, MaxBody, MaxBody, true}, {MaxBody, -1, MaxBody, true},
		{5 << 20, 5 << 20, MaxMessage, true}, {5 << 20, -1, MaxMessage, true}, {MaxMessage, MaxMessage, MaxMessage, true}, {MaxMessage, -1, MaxMessage, true},
	} {
		body := bytes.Repeat([]byte("x"), int(c.length))
		got, err := readMetered(iotest.OneByteReader(bytes.NewReader(body[:min(c.length, 100)])), c.size, c.most, newTestMeter(t, "acme"))
		if c.length <= 100 && (err != nil || len(got) != int(c.length)) {
			t.Errorf("%+v byte by byte: %d, %v", c, len(got), err)
		}
		a := newTestMeter(t, "acme")
		half := &io.LimitedReader{R: bytes.NewReader(body), N: c.length / 2}
		_, _ = readMetered(half, c.size, c.most, a)
		if n := a.pool.used; n > c.length+1 {
			t.Errorf("%+v reserves memory for %d bytes when %d have arrived", c, n, c.length/2)
		}
		a = newTestMeter(t, "acme")
		got, err = readMetered(bytes.NewReader(body), c.size, c.most, a)
		if err != nil || !bytes.Equal(got, body) || cap(got) != len(got) {
			t.Errorf("%+v: %d bytes in %d, %v", c, len(got), cap(got), err)
		}
		if n := a.pool.used; (n > 0) != c.reserves || c.reserves && (n < c.length || n > 2*c.length) {
			t.Errorf("%+v reserves memory for %d bytes", c, n)
		}
		if a.reservation.release(); a.pool.used != 0 || len(a.pool.apps) != 0 {
			t.Errorf("%+v leaves %d bytes behind", c, a.pool.used)
		}
	}
	stalled := io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if n := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, _ = readMetered(stalled, MaxMessage, MaxMessage, newTestMeter(b, "acme"))
		}
	}).AllocedBytesPerOp(); n > smallBodyBytes+(16<<10) {
		t.Errorf("a body that only says that it is large takes %d bytes", n)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	full := newTestMeter(t, "acme")
	if _, err := full.pool.reserveBody(t.Context(), "acme", full.pool.maxPerApp, 1, nil); err != nil {
		t.Fatal(err)
	}
	full.ctx = cancelled
	if _, err := readMetered(bytes.NewReader(make([]byte, 1<<20)), 1<<20, MaxMessage, full); !errors.Is(err, errBodyBudgetExhausted) {
		t.Errorf("without room: %v", err)
	}
}

// TestBuffers checks that the buffers of refused bodies are reused.
func TestBuffers(t *testing.T) {
	for _, size := range []int64{1<<20 - 1024, 4 << 20, -1} {
		body := make([]byte, 300_000)
		refused := func(t *testing.T) {
			_, _ = readMetered(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(errBodyBudgetExhausted)), size, MaxMessage, newTestMeter(t, "acme"))
		}
		refused(t)
		least := uint64(math.MaxUint64) // with the race detector a sync.Pool sometimes drops what it was given
		for range 100 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			refused(t)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least > 160<<10 {
			t.Errorf("a body of %d bytes that is refused after 300 kB leaves %d", size, least)
		}
	}
}
