package load_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/bench/load"
)

func target(t *testing.T, s load.Spec) load.Target {
	t.Helper()
	got, err := load.NewTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRunCountsCallsAndErrors(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"a":1}` || r.Header.Get("X-Test") != "yes" || r.URL.RequestURI() != "/x?y=1" {
			t.Errorf("server got %s %q %v", r.URL.RequestURI(), body, r.Header)
		}
		if seen.Add(1)%10 == 0 {
			fmt.Fprint(w, `{"error":"no"}`)
			return
		}
		fmt.Fprint(w, `{"state":"completed"}`)
	}))
	t.Cleanup(srv.Close)
	tgt := target(t, load.Spec{URL: srv.URL + "/x?y=1", Header: map[string]string{"X-Test": "yes"}, Body: []byte(`{"a":1}`), Want: `"completed"`})

	got, err := load.Run(t.Context(), tgt, load.Options{Conns: 4, Calls: 100})
	if err != nil {
		t.Fatal(err)
	}
	if got.Calls != 90 || got.Errors != 10 {
		t.Errorf("calls, errors = %d, %d, want 90, 10", got.Calls, got.Errors)
	}
	if !errors.Is(got.Err, load.ErrUnexpected) || !strings.Contains(got.Err.Error(), `{"error":"no"}`) {
		t.Errorf("first error = %v, want ErrUnexpected with the answer", got.Err)
	}
	if got.RPS() <= 0 || got.Whole(50) <= 0 || got.Whole(50) > got.Whole(99) {
		t.Errorf("rps %.0f, p50 %v, p99 %v", got.RPS(), got.Whole(50), got.Whole(99))
	}
}

func TestRunReads(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Content-Type") != "" || r.ContentLength != 0 {
			t.Errorf("server got %s with %d bytes and %v", r.Method, r.ContentLength, r.Header)
		}
		time.Sleep(2 * time.Millisecond)
		fmt.Fprint(w, `{"tasks":[]}`)
	}))
	t.Cleanup(srv.Close)
	got, err := load.Run(t.Context(), target(t, load.Spec{URL: srv.URL + "/tasks", Want: "tasks"}), load.Options{Conns: 1, Calls: 10})
	if err != nil || got.Calls != 10 || got.Mean() < 2*time.Millisecond || got.Mean() > got.Whole(100) {
		t.Errorf("%d calls, mean %v, longest %v (%v)", got.Calls, got.Mean(), got.Whole(100), err)
	}
}

func TestRunEachGivesEachConnectionItsTarget(t *testing.T) {
	t.Parallel()
	var a, b atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Millisecond)
		map[string]*atomic.Int64{"/a": &a, "/b": &b}[r.URL.Path].Add(1)
		fmt.Fprint(w, r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	each := []load.Target{target(t, load.Spec{URL: srv.URL + "/a", Want: "/a"}), target(t, load.Spec{URL: srv.URL + "/b", Want: "/b"})}
	for _, lean := range []bool{false, true} {
		a.Store(0)
		b.Store(0)
		got, err := load.RunEach(t.Context(), each, load.Options{Conns: 4, For: 50 * time.Millisecond, Lean: lean})
		if err != nil || got.Err != nil || a.Load() == 0 || b.Load() == 0 || int64(got.Calls) != a.Load()+b.Load() {
			t.Errorf("lean %v: %d calls of /a, %d of /b, %d in all (%v, %v)", lean, a.Load(), b.Load(), got.Calls, err, got.Err)
		}
	}
}

// TestLean drives connections in one thread: every call is counted and timed, answers may come in pieces, and one that
// is not good, or a connection that ends, is an error of the run.
func TestLean(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300_000) + "end"
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		switch r.URL.Path {
		case "/pieces": // of unknown length
			for _, part := range []string{"a\n", "b\n", "end\n"} {
				fmt.Fprint(w, part)
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		case "/long":
			time.Sleep(2 * time.Millisecond)
			w.Header().Set("Content-Length", fmt.Sprint(len(long)))
			fmt.Fprint(w, long)
		case "/bad":
			http.Error(w, "no end", http.StatusTeapot)
		case "/last":
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, "end")
		case "/cut":
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(srv.Close)
	for path, want := range map[string]string{"/pieces": "", "/long": "", "/bad": "status 418", "/last": "closed the connection", "/cut": "EOF"} {
		calls.Store(0)
		tgt := target(t, load.Spec{URL: srv.URL + path, Want: "end"})
		got, err := load.RunEach(t.Context(), []load.Target{tgt}, load.Options{Conns: 3, Calls: 12, Lean: true})
		switch {
		case err != nil:
			t.Errorf("%s: %v", path, err)
		case want != "":
			if got.Err == nil || !strings.Contains(got.Err.Error(), want) || got.Errors == 0 {
				t.Errorf("%s: %d errors, the first %v, want %q", path, got.Errors, got.Err, want)
			}
		case got.Calls != 12 || got.Errors != 0 || calls.Load() != 12:
			t.Errorf("%s: %d calls, %d errors (%v), want 12; the server saw %d", path, got.Calls, got.Errors, got.Err, calls.Load())
		case path == "/long" && (got.Whole(10) < 2*time.Millisecond || got.Mean() > got.Elapsed/4):
			t.Errorf("answers that take 2 ms came in %v, in the mean %v of %v", got.Whole(10), got.Mean(), got.Elapsed)
		}
	}
}

func TestCallTimesTheFirstToken(t *testing.T) {
	t.Parallel()
	const pause = 60 * time.Millisecond
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range []string{"data: submitted", "data: token one", "data: completed"} {
			fmt.Fprintf(w, "%s\n\n", line)
			w.(http.Flusher).Flush()
			time.Sleep(pause)
		}
	}))
	t.Cleanup(srv.Close)
	tgt := target(t, load.Spec{URL: srv.URL, Want: "completed", First: "token"})
	c, err := load.Dial(t.Context(), tgt)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	got, err := c.Call(t.Context(), tgt)
	if err != nil {
		t.Fatal(err)
	}
	if got.First < pause || got.Whole < got.First+pause {
		t.Errorf("first, whole = %v, %v; the server paused %v before and after the token", got.First, got.Whole, pause)
	}
}

func TestCallTimesFromTheStamp(t *testing.T) {
	t.Parallel()
	const pause = 60 * time.Millisecond
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(pause)
		fmt.Fprintf(w, "data: sent-at-%d completed\n\n", time.Now().Add(-time.Millisecond).UnixMicro())
	}))
	t.Cleanup(srv.Close)
	tgt := target(t, load.Spec{URL: srv.URL, Want: "completed", First: "sent-at-", Stamped: true})
	c, err := load.Dial(t.Context(), tgt)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got, err := c.Call(t.Context(), tgt); err != nil || got.First < time.Millisecond || got.First > got.Whole {
		t.Errorf("first, whole = %v, %v (%v)", got.First, got.Whole, err)
	}
}

func TestNewTargetRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"https://h/x", "h/x", "http://", ":"} {
		if _, err := load.NewTarget(load.Spec{URL: url}); err == nil {
			t.Errorf("NewTarget(%q) succeeded", url)
		}
	}
}
