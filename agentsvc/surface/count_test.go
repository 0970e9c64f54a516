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

// TestCountJSON: values are counted before anything is made of them, and too many of them refused.
func TestCountJSON(t *testing.T) {
	t.Parallel()
	list := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	deep := func(list string) string { return `{"a":{"a":{"a":{"a":` + list + `}}}}` }
	for _, c := range []struct {
		name, body string
		least      int // values; 0 = it is refused
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
		if _, again := io.ReadAll(pieces); (again == nil) != (err == nil) || again == nil && pieces.counter.count() != n {
			t.Errorf("%s: byte by byte %d values, %v, at once %d, %v", c.name, pieces.counter.count(), again, n, err)
		}
		var told *refusal
		switch {
		case c.least > 0 && (err != nil || n < c.least):
			t.Errorf("%s: %d values, %v, want at least %d", c.name, n, err, c.least)
		case c.least == 0 && (!errors.As(err, &told) || told.status != http.StatusRequestEntityTooLarge || !strings.Contains(told.text, "allowed")):
			t.Errorf("%s: %v, want a refusal that says how many are allowed", c.name, err)
		}
	}
}

// TestRefusedBodyStopsBeingRead: a body that is refused for what it holds is not read to its end, costs its app as much as one that is
// not, and leaves its buffers to others.
func TestRefusedBodyStopsBeingRead(t *testing.T) {
	t.Parallel()
	source := strings.NewReader(`{"params":{"message":{"metadata":{"list":[` + strings.Repeat("{},", 1<<20) + `{}]}}}}`)
	in := &countedBody{Reader: source}
	a := arriving(t, "acme")
	_, err := takeBody(in, int64(source.Len()), maxMessage, a)
	if err == nil || in.refused == nil || source.Len() < 2<<20 {
		t.Errorf("%v, refused %v, %d bytes are left", err, in.refused, source.Len())
	}
	before := a.rates.charge("acme", 2*bodyBurst*defaultBodyRate)
	a.refuse(maxValues)
	if more := a.rates.charge("acme", 0) - before; more < valueCost*maxValues*time.Second/defaultBodyRate/2 {
		t.Errorf("a refused body costs %v", more)
	}
	a.hold.release()
}

// arriving is for a body that comes in without anything else under way.
func arriving(t testing.TB, app db.ID) *arrival {
	return newArrival(t.Context(), newRooms(nil, defaultBodyRate), app, &hold{}, func() {})
}

// TestTakeBody: a body's word about its size has nothing allocated before its bytes are there, and one that is not small takes room
// for what has arrived.
func TestTakeBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length, size, most int64
		room               bool // it takes
	}{
		{0, 0, maxBody, false}, {10, 10, maxBody, false}, {10, -1, maxBody, false}, {smallBody, smallBody, maxBody, false}, {smallBody - 1, -1, maxBody, false},
		{smallBody + 1, smallBody + 1, maxBody, true}, {smallBody + 1, -1, maxBody, true}, {maxBody, maxBody, maxBody, true}, {maxBody, -1, maxBody, true},
		{5 << 20, 5 << 20, maxMessage, true}, {5 << 20, -1, maxMessage, true}, {maxMessage, maxMessage, maxMessage, true}, {maxMessage, -1, maxMessage, true},
	} {
		body := bytes.Repeat([]byte("x"), int(c.length))
		got, err := takeBody(iotest.OneByteReader(bytes.NewReader(body[:min(c.length, 100)])), c.size, c.most, arriving(t, "acme"))
		if c.length <= 100 && (err != nil || len(got) != int(c.length)) {
			t.Errorf("%+v byte by byte: %d, %v", c, len(got), err)
		}
		a := arriving(t, "acme")
		half := &io.LimitedReader{R: bytes.NewReader(body), N: c.length / 2}
		_, _ = takeBody(half, c.size, c.most, a)
		if n := a.pool.taken; n > c.length+1 {
			t.Errorf("%+v takes room for %d bytes when %d have arrived", c, n, c.length/2)
		}
		a = arriving(t, "acme")
		got, err = takeBody(bytes.NewReader(body), c.size, c.most, a)
		if err != nil || !bytes.Equal(got, body) || cap(got) != len(got) {
			t.Errorf("%+v: %d bytes in %d, %v", c, len(got), cap(got), err)
		}
		if n := a.pool.taken; (n > 0) != c.room || c.room && (n < c.length || n > 2*c.length) {
			t.Errorf("%+v takes room for %d bytes", c, n)
		}
		if a.hold.release(); a.pool.taken != 0 || len(a.pool.apps) != 0 {
			t.Errorf("%+v leaves %d bytes behind", c, a.pool.taken)
		}
	}
	stalled := io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if n := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, _ = takeBody(stalled, maxMessage, maxMessage, arriving(b, "acme"))
		}
	}).AllocedBytesPerOp(); n > smallBody+(16<<10) {
		t.Errorf("a body that only says that it is large takes %d bytes", n)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	full := arriving(t, "acme")
	if _, err := full.pool.take(t.Context(), "acme", full.pool.most, 1, nil); err != nil {
		t.Fatal(err)
	}
	full.ctx = gone
	if _, err := takeBody(bytes.NewReader(make([]byte, 1<<20)), 1<<20, maxMessage, full); !errors.Is(err, errNoRoom) {
		t.Errorf("without room: %v", err)
	}
}

// TestBuffers: of bodies that are refused nothing is left for the collector.
func TestBuffers(t *testing.T) {
	for _, size := range []int64{1<<20 - 1024, 4 << 20, -1} {
		body := make([]byte, 300_000)
		refused := func(t *testing.T) {
			_, _ = takeBody(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(errNoRoom)), size, maxMessage, arriving(t, "acme"))
		}
		refused(t)
		least := uint64(math.MaxUint64) // with the race detector a sync.Pool now and then forgets what it was given
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
