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
	// gap is the least time between two messages. Whatever is published meanwhile goes out together.
	gap = 2 * time.Millisecond
	// maxPause bounds the wait between two attempts to reconnect.
	maxPause = 3 * time.Second
)

// Link carries messages between the processes of one installation, to all or to one. [Postgres] and [Redis] make one.
type Link interface {
	// connect serves one connection of the process self until it breaks or ctx ends and returns why. It calls ready once
	// it receives, then receive for each message, its own included, and sends what it takes from out.
	connect(ctx context.Context, self string, ready func(), receive func(payload string), out <-chan parcel) error
	// limit is the most bytes that one message may have.
	limit() int
	// data reports whether messages may carry more than names.
	data() bool
}

// parcel is what goes out together. Whoever takes one puts into sent, once, whether it went.
type parcel struct {
	letters []letter
	sent    chan bool
}

// letter is a message to a process, or where to is "" to all.
type letter struct{ to, payload string }

// outbox gathers what is to be said while a message is on its way and sends it once, or more often where connections
// break.
type outbox struct {
	link Link
	log  *slog.Logger
	self string
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]*mail // by addressee
	sending bool
	waiting []chan struct{} // for everything to be sent
}

func newOutbox(link Link, log *slog.Logger) *outbox {
	if log == nil {
		log = slog.Default()
	}
	return &outbox{link: link, log: log, self: uuid.NewString(), wake: make(chan struct{}, 1), pending: map[string]*mail{}}
}

// put adds to the mail for a process, or where to is "" for all.
func (o *outbox) put(to string, add func(m *mail)) {
	o.mu.Lock()
	m := o.pending[to]
	if m == nil {
		m = &mail{}
		o.pending[to] = m
	}
	add(m)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take empties the outbox.
func (o *outbox) take() []letter {
	o.mu.Lock()
	pending := o.pending
	o.pending, o.sending = map[string]*mail{}, true
	o.mu.Unlock()
	var letters []letter
	for to, m := range pending {
		for _, text := range m.texts(o.self, o.link.limit()) {
			letters = append(letters, letter{to, text})
		}
	}
	return letters
}

// took says that what was taken has gone.
func (o *outbox) took() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sending = false; len(o.pending) > 0 {
		return
	}
	for _, w := range o.waiting {
		close(w)
	}
	o.waiting = nil
}

// flush waits until nothing is pending, or ctx ends.
func (o *outbox) flush(ctx context.Context) {
	o.mu.Lock()
	if len(o.pending) == 0 && !o.sending {
		o.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	o.waiting = append(o.waiting, empty)
	o.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}

// run keeps one connection up and tells once when it is lost and once when it is back.
func (o *outbox) run(ctx context.Context, connected func(), receive func(message)) error {
	out := make(chan parcel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.send(ctx, out)
	}()
	defer func() { <-done }()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, maxPause
	var since time.Time // of the outage; zero while there is none
	for ctx.Err() == nil {
		err := o.link.connect(ctx, o.self, func() {
			pause.Reset()
			if !since.IsZero() {
				o.log.InfoContext(ctx, "signals between processes flow again", "after", time.Since(since).Round(time.Millisecond))
				since = time.Time{}
			}
			connected()
		}, func(payload string) { o.receive(payload, receive) }, out)
		if ctx.Err() != nil {
			break
		}
		if since.IsZero() {
			since = time.Now()
			o.log.WarnContext(ctx, "signals between processes are interrupted; until they are back, each looks at the database now and then", "error", err)
		}
		sleep(ctx, pause.NextBackOff())
	}
	return ctx.Err()
}

// send hands what is pending to the connection, and to the next one what the last could not send.
func (o *outbox) send(ctx context.Context, out chan<- parcel) {
	var unsent []letter
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
			o.took()
		}
		sleep(ctx, gap)
	}
}

func (o *outbox) receive(payload string, receive func(message)) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		receive(message{Signals: [][2]string{{}}}) // somebody of another version said something
		return
	}
	if m.From != o.self {
		receive(m)
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
