package surface

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"stoa/tenancy/db"
)

// TestCountJSON checks the number of values that is counted, in one piece and byte by byte, and that too many are
// refused.
func TestCountJSON(t *testing.T) {
	t.Parallel()
	list := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	deep := func(list string) string { return `{"a":{"a":{"a":{"a":` + list + `}}}}` }
	for _, c := range []struct {
		name, body string
		least      int // values; 0 = the body is refused
	}{
		{"nothing", "", 1},
		{"a text with everything in it", `"[{,]}\\\",[\"{"`, 1},
		{"an object", `{"a":1,"b":[1,2,{}]}`, 6},
		{"a list of parts at its bound", `{"params":{"message":{"parts":` + list(maxList, "0") + `}}}`, maxList},
		{"and beyond", `{"params":{"message":{"parts":` + list(maxList+1, "0") + `}}}`, 0},
		{"a longer list in data", deep(list(maxList*2, "0")), 2 * maxList},
		{"too many values", deep(list(maxValues+1, "0")), 0},
		{"too many empty objects", deep(list(maxValues/2+1, "{}")), 0},
		{"too many members", deep("{" + strings.Repeat(`"":0,`, maxValues) + `"":0}`), 0},
		{"brackets that close nothing", strings.Repeat("]", 100) + "[,]", 3},
		{"a text that does not end", `{"a":"` + strings.Repeat(`\"`, 100), 2},
	} {
		n, err := countJSON([]byte(c.body))
		pieces := &countedBody{Reader: iotest.OneByteReader(strings.NewReader(c.body))}
		if _, repeated := io.ReadAll(pieces); (repeated == nil) != (err == nil) || repeated == nil && pieces.counter.totalValues() != n {
			t.Errorf("%s: byte by byte %d values, %v, at once %d, %v", c.name, pieces.counter.totalValues(), repeated, n, err)
		}
		var reported *responseError
		switch {
		case c.least > 0 && (err != nil || n < c.least):
			t.Errorf("%s: %d values, %v, want at least %d", c.name, n, err, c.least)
		case c.least == 0 && (!errors.As(err, &reported) || reported.status != http.StatusRequestEntityTooLarge || !strings.Contains(reported.text, "allowed")):
			t.Errorf("%s: %v, want a refusal that says how many are allowed", c.name, err)
		}
	}
}

// TestRefusedBodyStopsBeingRead checks that a body which is refused for its content is not read to its end, and that it
// costs its app as much as one that is accepted.
func TestRefusedBodyStopsBeingRead(t *testing.T) {
	t.Parallel()
	source := strings.NewReader(`{"params":{"message":{"metadata":{"list":[` + strings.Repeat("{},", 1<<20) + `{}]}}}}`)
	in := &countedBody{Reader: source}
	a := newTestMeter(t, "acme")
	_, err := readMetered(in, int64(source.Len()), maxMessage, a)
	if err == nil || in.refused == nil || source.Len() < 2<<20 {
		t.Errorf("%v, refused %v, %d bytes are left", err, in.refused, source.Len())
	}
	before := a.rates.chargeApp("acme", 2*bodyBurst*defaultBodyRate)
	a.chargeRefused(maxValues)
	if more := a.rates.chargeApp("acme", 0) - before; more < valueCost*maxValues*time.Second/defaultBodyRate/2 {
		t.Errorf("a refused body costs %v", more)
	}
	a.reservation.release()
}

// newTestMeter returns the meter of a body with a budget of its own.
func newTestMeter(t testing.TB, app db.ID) *bodyMeter {
	return newBodyMeter(t.Context(), newBodyBudget(nil, defaultBodyRate), app, &bodyReservation{}, func() {})
}

// TestTakeBody checks that an announced size allocates nothing before the bytes arrive, and that a body which is not
// small reserves memory for what has arrived.
func TestTakeBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length, size, most int64
		reserves           bool // it reserves memory in the pool
	}{
		{0, 0, maxBody, false}, {10, 10, maxBody, false}, {10, -1, maxBody, false}, {smallBodyBytes, smallBodyBytes, maxBody, false}, {smallBodyBytes - 1, -1, maxBody, false},
		{smallBodyBytes + 1, smallBodyBytes + 1, maxBody, true}, {smallBodyBytes + 1, -1, maxBody, true}, {maxBody, maxBody, maxBody, true}, {maxBody, -1, maxBody, true},
		{5 << 20, 5 << 20, maxMessage, true}, {5 << 20, -1, maxMessage, true}, {maxMessage, maxMessage, maxMessage, true}, {maxMessage, -1, maxMessage, true},
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
			_, _ = readMetered(stalled, maxMessage, maxMessage, newTestMeter(b, "acme"))
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
	if _, err := readMetered(bytes.NewReader(make([]byte, 1<<20)), 1<<20, maxMessage, full); !errors.Is(err, errBodyBudgetExhausted) {
		t.Errorf("without memory: %v", err)
	}
}

// TestBuffers checks that the buffers of refused bodies are reused.
func TestBuffers(t *testing.T) {
	for _, size := range []int64{1<<20 - 1024, 4 << 20, -1} {
		body := make([]byte, 300_000)
		refused := func(t *testing.T) {
			_, _ = readMetered(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(errBodyBudgetExhausted)), size, maxMessage, newTestMeter(t, "acme"))
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
