package stream

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/sse"
)

// testOptions are the intervals of a server, which the tests measure.
var testOptions = sse.Options{PieceTimeout: 30 * time.Second, KeepAlive: 15 * time.Second}

// newTestSubscription returns a subscription to what events yields of the task t, and a function that ends all streams
// of its server.
func newTestSubscription(client context.Context, t agentsvc.Task, events func(ctx context.Context) iter.Seq2[agentsvc.Event, error]) (endStreams func(), f *Subscription) {
	stopping, endStreams := context.WithCancel(context.Background())
	f, err := Open(client, Options{
		Stopping: stopping, Deadline: 30 * time.Second, CheckInterval: testOptions.KeepAlive, CheckAccess: func(context.Context) error { return nil },
	}, func(ctx context.Context) (agentsvc.Task, iter.Seq2[agentsvc.Event, error], error) {
		return t, events(ctx), nil
	})
	if err != nil {
		panic(err)
	}
	return endStreams, f
}

// plainEncoder encodes a status by its state, another fact by its sequence, a delta by its text, usage not at all, and an
// attempt as what has no JSON.
var plainEncoder = Encoder{
	EncodeEvent: func(ev agentsvc.Event) any {
		switch {
		case ev.Usage != nil:
			return nil
		case ev.Attempt != nil:
			return func() {}
		case ev.Chunk != nil:
			return ev.Chunk.Text
		case ev.Status != nil:
			return ev.Status.State
		}
		return ev.Seq
	},
	EncodeError: func(err error) any { return apierror.Classify(err).Text },
}

// stallingClient is a client that takes what it is sent until stallWrites is called.
type stallingClient struct {
	*httptest.ResponseRecorder
	mu       sync.Mutex
	stalled  bool
	deadline time.Time
}

func (s *stallingClient) stallWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
}

func (s *stallingClient) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return nil
}

func (s *stallingClient) Write(b []byte) (int, error) {
	s.mu.Lock()
	stalled, deadline := s.stalled, s.deadline
	s.mu.Unlock()
	if stalled {
		time.Sleep(time.Until(deadline))
		return 0, os.ErrDeadlineExceeded
	}
	return s.ResponseRecorder.Write(b)
}

func TestStream(t *testing.T) {
	t.Parallel()
	status := func(seq int64, s agentsvc.State) agentsvc.Event {
		return agentsvc.Event{Seq: seq, Status: &agentsvc.Status{State: s}}
	}
	sleep := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tests := []struct {
		name   string
		rests  bool
		events func(ctx context.Context, yield func(agentsvc.Event, error) bool)
		want   string
		err    bool
	}{
		{"facts have ids, chunks have none, silent events are not told", false, func(_ context.Context, yield func(agentsvc.Event, error) bool) {
			_ = yield(status(1, agentsvc.Working), nil) &&
				yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Text: "a\nb"}}, nil) &&
				yield(agentsvc.Event{Seq: 2, Usage: &agentsvc.Usage{}}, nil) &&
				yield(status(3, agentsvc.Completed), nil)
		}, "id: 1\ndata: \"working\"\n\ndata: \"a\\nb\"\n\nid: 3\ndata: \"completed\"\n\n", false},
		{"keeps alive while nothing happens", false, func(ctx context.Context, yield func(agentsvc.Event, error) bool) {
			_ = sleep(ctx, 31*time.Second)
			if yield(status(1, agentsvc.Working), nil) {
				_ = sleep(ctx, 14*time.Second)
				yield(status(2, agentsvc.Completed), nil)
			}
		}, ": keep-alive\n\n: keep-alive\n\nid: 1\ndata: \"working\"\n\nid: 2\ndata: \"completed\"\n\n", false},
		{"rests when the task waits", true, func(_ context.Context, yield func(agentsvc.Event, error) bool) {
			_ = yield(status(1, agentsvc.InputRequired), nil) && yield(status(2, agentsvc.Working), nil)
		}, "id: 1\ndata: \"input_required\"\n\n", false},
		{"stays while the task waits", false, func(_ context.Context, yield func(agentsvc.Event, error) bool) {
			_ = yield(status(1, agentsvc.InputRequired), nil) && yield(status(2, agentsvc.Working), nil)
		}, "id: 1\ndata: \"input_required\"\n\nid: 2\ndata: \"working\"\n\n", false},
		{"tells an error at its end", false, func(_ context.Context, yield func(agentsvc.Event, error) bool) {
			_ = yield(status(1, agentsvc.Working), nil) && yield(agentsvc.Event{}, errors.New("secret"))
		}, "id: 1\ndata: \"working\"\n\ndata: \"" + apierror.TextInternal + "\"\n\n", true},
		{"reports an event that cannot be encoded", false, func(_ context.Context, yield func(agentsvc.Event, error) bool) {
			yield(agentsvc.Event{Seq: 1, Attempt: &agentsvc.Attempt{}}, nil)
		}, "data: \"" + apierror.TextInternal + "\"\n\n", true},
		{"asks to come back where the database is away", false, func(_ context.Context, yield func(agentsvc.Event, error) bool) {
			_ = yield(status(1, agentsvc.Working), nil) && yield(agentsvc.Event{}, io.ErrUnexpectedEOF)
		}, "id: 1\ndata: \"working\"\n\nretry: 1000\n\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newTestSubscription(t.Context(), agentsvc.Task{}, func(ctx context.Context) iter.Seq2[agentsvc.Event, error] {
					return func(yield func(agentsvc.Event, error) bool) { tt.events(ctx, yield) }
				})
				w := httptest.NewRecorder()
				d := plainEncoder
				d.EndsWhenSettled = tt.rests
				if err := f.WriteSSE(w, d, testOptions); (err != nil) != tt.err {
					t.Errorf("Stream = %v, want an error: %v", err, tt.err)
				}
				if got := w.Body.String(); got != tt.want {
					t.Errorf("stream:\n%s\nwant:\n%s", got, tt.want)
				}
				if h := w.Header(); h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
					t.Errorf("headers %v", h)
				}
			})
		})
	}
}

// TestStreamWithoutMemory: a client is asked to come back for an event for which there is no memory, as it could not
// know otherwise that the task goes on.
func TestStreamWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := capacity.NewPool(1<<20, nil)
		others := pool.NewReservation("acme", 1)
		if err := others.ReserveBytes(t.Context(), 500<<10); err != nil {
			t.Fatal(err)
		}
		_, s := newTestSubscription(t.Context(), agentsvc.Task{}, func(context.Context) iter.Seq2[agentsvc.Event, error] {
			return func(yield func(agentsvc.Event, error) bool) {
				_ = yield(agentsvc.Event{Seq: 1}, nil) && yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Text: strings.Repeat("a", 100<<10)}}, nil)
			}
		})
		o := testOptions
		o.Memory = pool.NewReservation("acme", 1)
		w := httptest.NewRecorder()
		if err := s.WriteSSE(w, plainEncoder, o); !errors.Is(err, capacity.ErrFull) {
			t.Errorf("WriteSSE = %v, want it for the log", err)
		}
		if got, want := w.Body.String(), "id: 1\ndata: 1\n\nretry: 1000\n\n"; got != want {
			t.Errorf("stream %q, want %q", got, want)
		}
	})
}

// TestKeptFacts: the memory of what an encoder keeps is reserved; without it the stream ends with an error.
func TestKeptFacts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := &agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(strings.Repeat("x", 400<<10))}}
		_, f := newTestSubscription(t.Context(), agentsvc.Task{}, func(context.Context) iter.Seq2[agentsvc.Event, error] {
			return func(yield func(agentsvc.Event, error) bool) {
				for seq := int64(1); seq < 9 && yield(agentsvc.Event{Seq: seq, Message: large}, nil); seq++ {
				}
			}
		})
		f.options.Memory = capacity.NewPool(2<<20, nil).NewReservation("acme", 1)
		e := plainEncoder
		e.KeepsFacts, e.NotResumable = true, true
		e.NameEvent = func(body any) string {
			if _, ok := body.(int64); ok {
				return "fact"
			}
			return "error"
		}
		w := httptest.NewRecorder()
		err := f.WriteSSE(w, e, testOptions)
		if !errors.Is(err, agentsvc.CodeTooLarge) { // waiting would not help
			t.Fatalf("WriteSSE = %v, want it for the log", err)
		}
		f.options.Memory.ReleaseBytes()
		if got, want := w.Body.String(), "event: fact\ndata: 1\n\nevent: fact\ndata: 2\n\nevent: error\ndata: \""+err.Error()+"\"\n\n"; got != want {
			t.Errorf("stream %q, want %q", got, want)
		}
	})
}

// TestReadFacts: of a repeated message whose task has gone on, the facts of its own turn are read.
func TestReadFacts(t *testing.T) {
	t.Parallel()
	status := func(seq int64, s agentsvc.State) agentsvc.Event {
		return agentsvc.Event{Seq: seq, Status: &agentsvc.Status{State: s}}
	}
	_, f := newTestSubscription(t.Context(), agentsvc.Task{Seq: 4, Status: agentsvc.Status{State: agentsvc.Completed}}, func(context.Context) iter.Seq2[agentsvc.Event, error] {
		return func(yield func(agentsvc.Event, error) bool) {
			_ = yield(status(1, agentsvc.Working), nil) && yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Text: "a"}}, nil) &&
				yield(status(2, agentsvc.InputRequired), nil) && yield(status(3, agentsvc.Working), nil) && yield(status(4, agentsvc.Completed), nil)
		}
	})
	var got []int64
	err := f.ReadFacts(time.Minute, func(ev agentsvc.Event) bool {
		got = append(got, ev.Seq)
		return ev.Status.State.IsInterrupted()
	})
	if err != nil || !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("the facts are %v, %v", got, err)
	}
}

// yieldThenBlock yields one event and then waits until its context ends.
func yieldThenBlock(ctx context.Context) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		if yield(agentsvc.Event{Seq: 1}, nil) {
			<-ctx.Done()
			yield(agentsvc.Event{}, ctx.Err())
		}
	}
}

func TestStreamEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(endStreams, disconnect func(), w *stallingClient)
		want string
	}{
		{"with the server", func(endStreams, _ func(), _ *stallingClient) { endStreams() }, "id: 1\ndata: 1\n\nretry: 1000\n\n"},
		{"with its client", func(_, disconnect func(), _ *stallingClient) { disconnect() }, "id: 1\ndata: 1\n\n"},
		{"with a client that takes nothing", func(_, _ func(), w *stallingClient) { w.stallWrites() }, "id: 1\ndata: 1\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, disconnect := context.WithCancel(t.Context())
				defer disconnect()
				endStreams, f := newTestSubscription(client, agentsvc.Task{}, yieldThenBlock)
				w := &stallingClient{ResponseRecorder: httptest.NewRecorder()}
				ended := make(chan error, 1)
				go func() { ended <- f.WriteSSE(w, plainEncoder, testOptions) }()
				synctest.Wait()
				begin := time.Now()
				tt.end(endStreams, disconnect, w)
				if err := <-ended; err != nil {
					t.Errorf("Stream = %v", err)
				}
				if took := time.Since(begin); took > 46*time.Second {
					t.Errorf("the stream ended after %v, want a keep-alive and a stall at most", took)
				}
				if got := w.Body.String(); got != tt.want {
					t.Errorf("stream %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestWaitSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, f := newTestSubscription(t.Context(), agentsvc.Task{ID: "t", Status: agentsvc.Status{State: agentsvc.Working}}, yieldThenBlock)
		begin := time.Now()
		got, err := f.WaitSettled(time.Minute)
		if err != nil || got.Status.State != agentsvc.Working || time.Since(begin) != time.Minute {
			t.Errorf("Wait = %s, %v after %v, want the working task after a minute", got.Status.State, err, time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		endStreams, f := newTestSubscription(t.Context(), agentsvc.Task{ID: "t", Status: agentsvc.Status{State: agentsvc.Working}}, yieldThenBlock)
		time.AfterFunc(time.Second, endStreams)
		if got, err := f.WaitSettled(time.Minute); err != nil || got.ID != "t" {
			t.Errorf("Wait = %v, %v at the server's end, want the task as it stands", got.ID, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, f := newTestSubscription(t.Context(), agentsvc.Task{}, func(context.Context) iter.Seq2[agentsvc.Event, error] {
			return func(yield func(agentsvc.Event, error) bool) { yield(agentsvc.Event{}, io.ErrUnexpectedEOF) }
		})
		if _, err := f.WaitSettled(time.Minute); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Wait = %v, want the log's error", err)
		}
	})
}
