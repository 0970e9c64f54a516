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
	// minSendInterval is the least time between two messages. Whatever is published meanwhile goes out together.
	minSendInterval = 2 * time.Millisecond
	// maxReconnectPause bounds the wait between two attempts to reconnect.
	maxReconnectPause = 3 * time.Second
)

// Link carries messages between the processes of one installation, to all or to one. [NewPostgresLink] and [NewRedisLink] make one.
type Link interface {
	// serveConnection serves one connection of the process self until it breaks or ctx ends and returns why. It calls ready once
	// it receives, then receive for each message, its own included, and sends what it takes from out.
	serveConnection(ctx context.Context, self string, ready func(), receive func(payload string), out <-chan outgoingBatch) error
	// maxMessageSize is the most bytes that one message may have.
	maxMessageSize() int
	// carriesData reports whether messages may carry more than names.
	carriesData() bool
}

// outgoingBatch is what goes out together. Whoever takes one puts into sent, once, whether it went.
type outgoingBatch struct {
	messages []addressedMessage
	sent     chan bool
}

// addressedMessage is a message to a process, or where to is "" to all.
type addressedMessage struct{ to, payload string }

// sendQueue gathers what is to be said while a message is on its way and sends it once, or more often where connections
// break.
type sendQueue struct {
	link Link
	log  *slog.Logger
	self string
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]*pendingSignals // by addressee
	sending bool
	waiting []chan struct{} // for everything to be sent
}

func newSendQueue(link Link, log *slog.Logger) *sendQueue {
	if log == nil {
		log = slog.Default()
	}
	return &sendQueue{link: link, log: log, self: uuid.NewString(), wake: make(chan struct{}, 1), pending: map[string]*pendingSignals{}}
}

// enqueue adds to the mail for a process, or where to is "" for all.
func (o *sendQueue) enqueue(to string, add func(m *pendingSignals)) {
	o.mu.Lock()
	m := o.pending[to]
	if m == nil {
		m = &pendingSignals{}
		o.pending[to] = m
	}
	add(m)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// drainPending empties the outbox.
func (o *sendQueue) drainPending() []addressedMessage {
	o.mu.Lock()
	pending := o.pending
	o.pending, o.sending = map[string]*pendingSignals{}, true
	o.mu.Unlock()
	var messages []addressedMessage
	for to, m := range pending {
		for _, text := range m.encodeMessages(o.self, o.link.maxMessageSize()) {
			messages = append(messages, addressedMessage{to, text})
		}
	}
	return messages
}

// markSent says that what was taken has gone.
func (o *sendQueue) markSent() {
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

// waitUntilSent waits until nothing is pending, or ctx ends.
func (o *sendQueue) waitUntilSent(ctx context.Context) {
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

// maintainConnection keeps one connection up and tells once when it is lost and once when it is back.
func (o *sendQueue) maintainConnection(ctx context.Context, connected func(), receive func(message)) error {
	out := make(chan outgoingBatch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.sendPending(ctx, out)
	}()
	defer func() { <-done }()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, maxReconnectPause
	var since time.Time // of the outage; zero while there is none
	for ctx.Err() == nil {
		err := o.link.serveConnection(ctx, o.self, func() {
			pause.Reset()
			if !since.IsZero() {
				o.log.InfoContext(ctx, "signals between processes flow again", "after", time.Since(since).Round(time.Millisecond))
				since = time.Time{}
			}
			connected()
		}, func(payload string) { o.decodePayload(payload, receive) }, out)
		if ctx.Err() != nil {
			break
		}
		if since.IsZero() {
			since = time.Now()
			o.log.WarnContext(ctx, "signals between processes are interrupted; until they are back, each looks at the database now and then", "error", err)
		}
		sleepContext(ctx, pause.NextBackOff())
	}
	return ctx.Err()
}

// sendPending hands what is pending to the connection, and to the next one what the last could not send.
func (o *sendQueue) sendPending(ctx context.Context, out chan<- outgoingBatch) {
	var unsent []addressedMessage
	for {
		if unsent == nil {
			select {
			case <-o.wake:
			case <-ctx.Done():
				return
			}
			unsent = o.drainPending()
		}
		p := outgoingBatch{unsent, make(chan bool, 1)}
		select {
		case out <- p:
		case <-ctx.Done():
			return
		}
		if <-p.sent {
			unsent = nil
			o.markSent()
		}
		sleepContext(ctx, minSendInterval)
	}
}

func (o *sendQueue) decodePayload(payload string, receive func(message)) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		receive(message{Signals: [][2]string{{}}}) // somebody of another version said something
		return
	}
	if m.From != o.self {
		receive(m)
	}
}

func sleepContext(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// connectionError tells why a connection ended, never nil.
func connectionError(err error, doing string) error {
	if err == nil {
		err = errors.New("connection closed")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
