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
	// minSendInterval is the least time between two batches; signals within it are sent together.
	minSendInterval = 2 * time.Millisecond
	// maxReconnectPause bounds the exponential pause between two attempts to connect.
	maxReconnectPause = 3 * time.Second
)

// Link carries messages between the processes of one installation, to all or to one. [NewPostgresLink] and
// [NewRedisLink] return one.
type Link interface {
	// serveConnection serves one connection of the process with the id self until it breaks or ctx ends, and returns
	// why. It calls ready once it receives messages, then receive for each, the process's own included, and sends the
	// batches that it takes from out.
	serveConnection(ctx context.Context, self string, ready func(), receive func(payload string), out <-chan outgoingBatch) error
	// maxMessageSize is the largest size of one message, in bytes.
	maxMessageSize() int
	// carriesData reports whether messages may carry data, and not only names.
	carriesData() bool
}

// outgoingBatch are messages that are sent together. The link that takes one must put into sent, exactly once, whether
// it was sent; false makes the queue send it again on the next connection.
type outgoingBatch struct {
	messages []addressedMessage
	sent     chan bool
}

// addressedMessage is a message to the process with the id to, or to all if to is "".
type addressedMessage struct{ to, payload string }

// sendQueue collects signals while a batch is being sent, and sends each at least once: a batch that was under way when
// the connection broke is sent again.
type sendQueue struct {
	link Link
	log  *slog.Logger
	// self is the random id of this process on the bus.
	self string
	// onFailure is called for each connection that ended or could not be made. [Bus.OnFailure] sets it before Run.
	onFailure func()
	// wake (capacity 1) starts sendPending when something is pending.
	wake chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// pending maps the id of a receiving process, "" for all, to what is to be sent to it.
	pending map[string]*pendingSignals
	// sending is set while a batch that was taken from pending has not been sent.
	sending bool
	// waiting are the channels of waitUntilSent, closed when everything is sent.
	waiting []chan struct{}
}

func newSendQueue(link Link, log *slog.Logger) *sendQueue {
	if log == nil {
		log = slog.Default()
	}
	return &sendQueue{link: link, log: log, self: uuid.NewString(), onFailure: func() {}, wake: make(chan struct{}, 1), pending: map[string]*pendingSignals{}}
}

// enqueue lets add change what is pending for the process to, or for all if to is "". add runs under the lock.
func (q *sendQueue) enqueue(to string, add func(m *pendingSignals)) {
	q.mu.Lock()
	m := q.pending[to]
	if m == nil {
		m = &pendingSignals{}
		q.pending[to] = m
	}
	add(m)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drainPending takes everything pending and returns it as messages.
func (q *sendQueue) drainPending() []addressedMessage {
	q.mu.Lock()
	pending := q.pending
	q.pending, q.sending = map[string]*pendingSignals{}, true
	q.mu.Unlock()
	var messages []addressedMessage
	for to, m := range pending {
		for _, text := range m.encodeMessages(q.self, q.link.maxMessageSize()) {
			messages = append(messages, addressedMessage{to, text})
		}
	}
	return messages
}

// markSent records that the batch taken last was sent, and ends waits if nothing else is pending.
func (q *sendQueue) markSent() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sending = false; len(q.pending) > 0 {
		return
	}
	for _, w := range q.waiting {
		close(w)
	}
	q.waiting = nil
}

// waitUntilSent returns when nothing is pending or being sent, or ctx ends.
func (q *sendQueue) waitUntilSent(ctx context.Context) {
	q.mu.Lock()
	if len(q.pending) == 0 && !q.sending {
		q.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	q.waiting = append(q.waiting, empty)
	q.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}

// maintainConnection keeps one connection of the link open until ctx ends, with exponential pauses between attempts. It
// logs once when the connection is lost and once when it is restored.
func (q *sendQueue) maintainConnection(ctx context.Context, connected func(), receive func(message)) error {
	out := make(chan outgoingBatch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.sendPending(ctx, out)
	}()
	defer func() { <-done }()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, maxReconnectPause
	var since time.Time // beginning of the outage; zero while connected
	for ctx.Err() == nil {
		err := q.link.serveConnection(ctx, q.self, func() {
			pause.Reset()
			if !since.IsZero() {
				q.log.InfoContext(ctx, "signals between processes work again", "after", time.Since(since).Round(time.Millisecond))
				since = time.Time{}
			}
			connected()
		}, func(payload string) { q.decodePayload(payload, receive) }, out)
		if ctx.Err() != nil {
			break
		}
		q.onFailure()
		if since.IsZero() {
			since = time.Now()
			q.log.WarnContext(ctx, "signals between processes are interrupted; meanwhile each process polls the database", "error", err)
		}
		sleepContext(ctx, pause.NextBackOff())
	}
	return ctx.Err()
}

// sendPending hands batches to the connection until ctx ends. A batch that was not sent goes to the next connection.
func (q *sendQueue) sendPending(ctx context.Context, out chan<- outgoingBatch) {
	var unsent []addressedMessage
	for {
		if unsent == nil {
			select {
			case <-q.wake:
			case <-ctx.Done():
				return
			}
			unsent = q.drainPending()
		}
		p := outgoingBatch{unsent, make(chan bool, 1)}
		select {
		case out <- p:
		case <-ctx.Done():
			return
		}
		if <-p.sent {
			unsent = nil
			q.markSent()
		}
		// Signals that are enqueued during this pause are merged into the next batch.
		sleepContext(ctx, minSendInterval)
	}
}

// decodePayload passes a message of another process to receive. One that cannot be parsed, as from another version of
// Stoa, counts as a signal for everything.
func (q *sendQueue) decodePayload(payload string, receive func(message)) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		receive(message{Signals: [][2]string{{}}}) // the empty topic: everything may have changed
		return
	}
	// The link delivers a process's own messages as well; its receivers were called when it published.
	if m.From != q.self {
		receive(m)
	}
}

// sleepContext waits for d or until ctx ends.
func sleepContext(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// connectionError returns a non-nil error that says in which operation a connection ended.
func connectionError(err error, doing string) error {
	if err == nil {
		err = errors.New("connection closed")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
