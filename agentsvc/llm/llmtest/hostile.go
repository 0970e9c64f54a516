package llmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// WireFormat is how a protocol writes an answer, piece by piece. The strings are the bytes of the body.
type WireFormat struct {
	// Provider returns the provider of the protocol for the server at base, called through client.
	Provider func(t *testing.T, base string, client *http.Client) llm.Provider
	// Event frames JSON as an event.
	Event func(data string) string
	// Begin precedes all other pieces.
	Begin string
	// Text is a piece of text.
	Text func(text string) string
	// Call is the n-th tool call with text as the first piece of its arguments. It does not end the call.
	Call func(n int, name, text string) string
	// End ends an answer.
	End string
	// StreamError is an error in the middle of an answer that contains [Canary].
	StreamError string
	// Comment is what a server may send to keep the connection open, "" if the protocol has no such thing.
	Comment string
}

// RunHostileSuite checks that answers which no server should send end in a typed error, within the time and memory
// bounds of package upstream: not in a tool call, a success or a hang.
func RunHostileSuite(t *testing.T, w WireFormat) {
	t.Run("garbage", func(t *testing.T) { testGarbage(t, w) })
	t.Run("memory", func(t *testing.T) { testMemory(t, w) })
	t.Run("drip feed", func(t *testing.T) { testDripFeed(t, w) })
	t.Run("silent fallbacks", func(t *testing.T) { testSilentFallbacks(t, w) })
	t.Run("slow reader", func(t *testing.T) { testSlowReader(t, w) })
	t.Run("lost lease", func(t *testing.T) { testLostLease(t, w) })
}

const (
	reasonBrokeOff  = "the answer broke off"
	reasonMalformed = "the answer is malformed"
	reasonTooLong   = "the answer is too long"
)

// startProvider returns a provider whose server is h.
func (w WireFormat) startProvider(t *testing.T, h http.HandlerFunc) llm.Provider {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return w.Provider(t, srv.URL, client)
}

// testGarbage sends answers that break off, are malformed, too long, or report an error, and checks the reason shown.
func testGarbage(t *testing.T, w WireFormat) {
	hi := w.Text("hi")
	half := w.Event(`{"a":1}`)
	half = half[:strings.Index(half, "{")+4]
	tests := []struct {
		name    string
		events  []string
		reasons []string
	}{
		{"nothing", nil, []string{reasonBrokeOff}},
		{"no end", []string{hi}, []string{reasonBrokeOff}},
		{"half an event", []string{hi, half}, []string{reasonBrokeOff, reasonMalformed}},
		{"a whole tool call without end", []string{w.Call(0, "get", `{"a":1}`)}, []string{reasonBrokeOff}},
		{"a nameless tool", []string{w.Call(0, "", `{}`), w.End}, []string{"the model made a malformed tool call"}},
		{"cut arguments", []string{w.Call(0, "get", `{"a":`), w.End}, []string{"the model made a malformed tool call", reasonMalformed}},
		{"garbage", []string{hi, w.Event("\x00\xff not JSON")}, []string{reasonMalformed}},
		{"wrong types", []string{hi, w.Event("[1]")}, []string{reasonMalformed, reasonBrokeOff}},
		{"HTML", []string{"<html><body>" + Canary + "</body></html>\n\n"}, []string{reasonBrokeOff, reasonMalformed}},
		{"an error", []string{hi, w.StreamError}, []string{"the server reported an error in the middle of the answer"}},
		{"too many calls", []string{manyCalls(w), w.End}, []string{reasonTooLong}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := w.startProvider(t, func(rw http.ResponseWriter, _ *http.Request) { writeEvents(rw, w.Begin, tt.events...) })
			a := CollectAnswer(t.Context(), t, p, UserConversation("x"))
			var e *llm.Error
			if !errors.As(a.Err, &e) || !slices.Contains(tt.reasons, e.Reason) || strings.Contains(e.Error(), Canary) {
				t.Errorf("error = %v, want %q", a.Err, tt.reasons)
			}
			if len(a.Calls) > 0 {
				t.Errorf("calls %+v were yielded", a.Calls)
			}
		})
	}
}

// manyCalls returns more tool calls than an answer may have.
func manyCalls(w WireFormat) string {
	var b strings.Builder
	for n := range 200 {
		b.WriteString(w.Call(n, "get", "{}"))
	}
	return b.String()
}

// writeEvents writes a body and flushes it.
func writeEvents(w http.ResponseWriter, begin string, events ...string) {
	for _, ev := range append([]string{begin}, events...) {
		if _, err := io.WriteString(w, ev); err != nil {
			return
		}
	}
	w.(http.Flusher).Flush()
}

// testMemory sends answers far larger than permitted and measures the heap.
func testMemory(t *testing.T, w WireFormat) {
	block := strings.Repeat("x", 1<<20)
	start, _, _ := strings.Cut(w.Event("DATA"), "DATA")
	tests := []struct {
		name              string
		first, each, last string
	}{
		{"a line of 100 MB", start, block, "\n\n"},
		{"100 MB of text", "", w.Text(block), ""},
		{"100 MB of arguments", "", w.Call(0, "get", `{"a":"`+block+`"}`), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := w.startProvider(t, func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(rw, w.Begin+tt.first)
				for range 100 {
					if _, err := io.WriteString(rw, tt.each); err != nil {
						return
					}
				}
				_, _ = io.WriteString(rw, tt.last+w.End)
			})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var got error
			for c, err := range p.Stream(t.Context(), llm.Request{Conversation: UserConversation("x")}) {
				if c.ToolCall != nil {
					t.Error("a tool call was yielded")
				}
				got = err
			}
			runtime.ReadMemStats(&after)
			var e *llm.Error
			if !errors.As(got, &e) || e.Retryable || e.Reason != reasonTooLong {
				t.Errorf("error = %v", got)
			}
			// All allocations, garbage included, far exceed what is live at a time.
			if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 600 {
				t.Errorf("%d MiB were allocated", grown)
			}
			if heapGrowth := int64(after.HeapInuse) - int64(before.HeapInuse); heapGrowth > 128<<20 {
				t.Errorf("the heap grew by %d MiB", heapGrowth>>20)
			}
		})
	}
}

// roundTripFunc is a transport without a network, so that the test can run in a synctest bubble.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// firstTimeout and totalTimeout are the defaults of package upstream.
const (
	firstTimeout = 10 * time.Minute
	totalTimeout = 20 * time.Minute
)

// testDripFeed sends too little, too slowly, or without end, and checks when the call ends.
func testDripFeed(t *testing.T, w WireFormat) {
	tests := []struct {
		name    string
		drip    string
		want    time.Duration
		begun   bool
		endless bool
	}{
		{name: "silence", want: firstTimeout},
		{name: "a byte a second", drip: "x", want: firstTimeout},
		{name: "comments", drip: w.Comment, want: firstTimeout},
		{name: "events, then silence", drip: w.Text("a"), want: 5*time.Second + time.Minute, begun: true},
		{name: "a word a second without end", drip: w.Text("a"), want: totalTimeout, begun: true, endless: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := w.Provider(t, "http://model.example", &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
					body, out := io.Pipe()
					go func() {
						if tt.begun {
							_, _ = io.WriteString(out, w.Begin)
						}
						for n := 0; ; n++ {
							select {
							case <-r.Context().Done():
								_ = out.CloseWithError(r.Context().Err())
								return
							case <-time.After(time.Second):
								if tt.drip != "" && (!tt.begun || n < 5 || tt.endless) {
									_, _ = io.WriteString(out, tt.drip)
								}
							}
						}
					}()
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, Request: r}, nil
				})})
				start := time.Now()
				a := CollectAnswer(t.Context(), t, p, UserConversation("x"))
				var e *llm.Error
				reason := "no further piece of the answer came in time"
				if tt.endless {
					reason = "the answer took longer than 20m0s"
				}
				if !errors.As(a.Err, &e) || e.Retryable == tt.endless || e.Reason != reason {
					t.Errorf("error = %v", a.Err)
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("gave up after %v, want %v", got, tt.want)
				}
				if tt.begun && !tt.endless && a.Text != "aaaaa" {
					t.Errorf("text = %q", a.Text)
				}
			})
		})
	}
}

// testSilentFallbacks calls a chain of models whose servers do not answer: the whole call fails after the time of one.
func testSilentFallbacks(t *testing.T, w WireFormat) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		var chain []llm.Provider
		for range 3 {
			chain = append(chain, llm.WithRetry(llm.WithCircuitBreaker(w.Provider(t, "http://model.example", &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				requests++
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}))))
		}
		start := time.Now()
		a := CollectAnswer(t.Context(), t, llm.WithFallback(chain[0], chain[1:]...), UserConversation("x"))
		var e *llm.Error
		if !errors.As(a.Err, &e) || e.Reason != "no further piece of the answer came in time" {
			t.Errorf("error = %v", a.Err)
		}
		if got := time.Since(start); got != firstTimeout || requests != 3 {
			t.Errorf("gave up after %v and %d requests, want %v and one of each model", got, requests, firstTimeout)
		}
	})
}

// cancellableBody is a body whose reads fail after its request was cancelled, as those of net/http do.
type cancellableBody struct {
	req  *http.Request
	next io.Reader
}

// Read implements [io.Reader].
func (b *cancellableBody) Read(p []byte) (int, error) {
	if err := b.req.Context().Err(); err != nil {
		return 0, err
	}
	return b.next.Read(p)
}

// testSlowReader takes longer than the idle timeout to process each chunk, which must not count as the model's silence.
func testSlowReader(t *testing.T, w WireFormat) {
	synctest.Test(t, func(t *testing.T) {
		p := w.Provider(t, "http://model.example", &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			body := w.Begin + w.Text("a") + w.Text("b") + w.End
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(&cancellableBody{r, iotest.OneByteReader(strings.NewReader(body))}), Request: r}, nil
		})})
		var text string
		for c, err := range p.Stream(t.Context(), llm.Request{Conversation: UserConversation("x")}) {
			if err != nil {
				t.Fatal(err)
			}
			text += c.Text
			time.Sleep(time.Hour)
		}
		if text != "ab" {
			t.Errorf("text = %q", text)
		}
	})
}

// testLostLease checks that a run which lost its lease sends neither a first request nor a retry.
func testLostLease(t *testing.T, w WireFormat) {
	for requests := range 2 {
		t.Run(fmt.Sprintf("after %d requests", requests), func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			p := llm.WithRetry(w.startProvider(t, func(rw http.ResponseWriter, _ *http.Request) {
				sent.Add(1)
				rw.WriteHeader(http.StatusServiceUnavailable)
			}))
			ctx, cancelLease := context.WithCancelCause(t.Context())
			defer cancelLease(nil)
			checks := 0
			lease := agentsvc.LeaseCheck{Confirm: func(context.Context) {
				if checks++; checks > requests {
					cancelLease(agentsvc.ErrLeaseLost)
				}
			}}
			a := collectRequest(ctx, t, p, llm.Request{RunScope: agentsvc.RunScope{Lease: lease}, Conversation: UserConversation("x")})
			if !errors.Is(a.Err, context.Canceled) || sent.Load() != int64(requests) {
				t.Errorf("error %v after %d requests, want %d", a.Err, sent.Load(), requests)
			}
		})
	}
}
