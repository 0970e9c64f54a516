package signal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
)

const (
	// maxPending bounds the signals that wait to be sent; beyond it they become one "look at everything".
	maxPending = 10_000
	// maxPayload is the size of one message in bytes: PostgreSQL carries less than 8,000.
	maxPayload = 7_500
	// gap is the least time between two messages. Whatever is published meanwhile goes out together.
	gap = 2 * time.Millisecond
	// maxPause bounds the wait between two attempts to reconnect.
	maxPause = 3 * time.Second
)

// Link carries messages between the processes of one installation, each to all. [Postgres] and [Redis] make one.
type Link interface {
	// connect serves one connection until it breaks or ctx ends and returns why. It calls ready once it receives, then
	// receive for each message, its own included, and sends what it takes from out.
	connect(ctx context.Context, ready func(), receive func(payload string), out <-chan parcel) error
}

// parcel is what goes out together. Whoever takes one puts into sent, once, whether it went.
type parcel struct {
	payloads []string
	sent     chan bool
}

// outbox gathers signals while a message is on its way and sends each once, or more often where connections break.
type outbox struct {
	link   Link
	log    *slog.Logger
	origin string
	wake   chan struct{}

	mu      sync.Mutex
	pending map[Signal]struct{}
}

func newOutbox(link Link, log *slog.Logger) *outbox {
	if log == nil {
		log = slog.Default()
	}
	return &outbox{link: link, log: log, origin: uuid.NewString(), wake: make(chan struct{}, 1), pending: map[Signal]struct{}{}}
}

func (o *outbox) put(s Signal) {
	o.mu.Lock()
	if len(o.pending) >= maxPending {
		clear(o.pending)
		s = Signal{}
	}
	o.pending[s] = struct{}{}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run keeps one connection up. What happened between two of them is unknown, so each begins with "look at everything".
func (o *outbox) run(ctx context.Context, deliver func(Signal)) error {
	out := make(chan parcel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.send(ctx, out)
	}()
	defer func() { <-done }()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, maxPause
	for ctx.Err() == nil {
		err := o.link.connect(ctx, func() {
			pause.Reset()
			deliver(Signal{})
		}, func(payload string) { o.receive(payload, deliver) }, out)
		if ctx.Err() != nil {
			break
		}
		wait := pause.NextBackOff()
		o.log.WarnContext(ctx, "signals between processes are interrupted", "error", err, "retry", wait)
		sleep(ctx, wait)
	}
	return ctx.Err()
}

// send hands what is pending to the connection, and to the next one what the last could not send.
func (o *outbox) send(ctx context.Context, out chan<- parcel) {
	var unsent []string
	for {
		if unsent == nil {
			select {
			case <-o.wake:
			case <-ctx.Done():
				return
			}
			unsent = o.take()
		}
		p := parcel{unsent, make(chan bool, 1)}
		select {
		case out <- p:
		case <-ctx.Done():
			return
		}
		if <-p.sent {
			unsent = nil
		}
		sleep(ctx, gap)
	}
}

// message is what travels: who says it, and pairs of topic and key.
type message struct {
	From    string      `json:"from"`
	Signals [][2]string `json:"signals"`
}

// take empties the outbox into payloads of at most maxPayload bytes.
func (o *outbox) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var payloads []string
	m, size := message{From: o.origin}, 100
	flush := func() {
		if len(m.Signals) > 0 {
			text, _ := json.Marshal(m) // strings always marshal
			payloads = append(payloads, string(text))
		}
		m.Signals, size = nil, 100
	}
	for s := range o.pending {
		n := encodedLen(s)
		if n > maxPayload-100 {
			s.Key = ""
			if n = encodedLen(s); n > maxPayload-100 {
				s, n = Signal{}, 8
			}
		}
		if size+n > maxPayload {
			flush()
		}
		m.Signals, size = append(m.Signals, [2]string{s.Topic, s.Key}), size+n
	}
	flush()
	clear(o.pending)
	return payloads
}

func encodedLen(s Signal) int {
	text, _ := json.Marshal([2]string{s.Topic, s.Key})
	return len(text) + 1
}

func (o *outbox) receive(payload string, deliver func(Signal)) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		deliver(Signal{}) // somebody of another version said something
		return
	}
	if m.From == o.origin {
		return
	}
	for _, s := range m.Signals {
		deliver(Signal{s[0], s[1]})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// lost tells why a connection ended, never nil.
func lost(err error, doing string) error {
	if err == nil {
		err = errors.New("connection closed")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
