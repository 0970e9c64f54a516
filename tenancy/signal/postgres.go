package signal

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// broadcastChannel is the NOTIFY channel of all processes on a database. Each process has one of its own as well,
	// see channelFor.
	broadcastChannel = "stoa_signal"
	// idleTimeout is how long a connection may be silent before it is checked with a ping.
	idleTimeout = 10 * time.Second
	// ioTimeout bounds connecting, sending and pinging.
	ioTimeout = 5 * time.Second
)

// NewPostgresLink returns a link over LISTEN and NOTIFY, on one connection of its own to the database at url. It needs
// a session: a pooler in transaction mode delivers no notifications, so url must be the direct address, or Redis be
// used.
func NewPostgresLink(url string) Link { return &postgresLink{url: url} }

type postgresLink struct{ url string }

// maxMessageSize is below the 8000 bytes to which PostgreSQL limits a payload.
func (*postgresLink) maxMessageSize() int { return 7_500 }

// carriesData is false: every notification passes through one queue that all listeners of the database read.
func (*postgresLink) carriesData() bool { return false }

// serveConnection listens and sends on one connection. pgx allows one use at a time, so it waits for notifications
// until a batch to send interrupts the wait.
func (p *postgresLink) serveConnection(ctx context.Context, self string, ready func(), receive func(string), out <-chan outgoingBatch) error {
	conn, err := p.openConnection(ctx, self)
	if err != nil {
		return connectionError(err, "connect to PostgreSQL for signals")
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	ready()
	for {
		next, err := receiveUntilOutgoing(ctx, conn, receive, out)
		if err == nil {
			err = sendNotifications(ctx, conn, next.messages)
		}
		if next.sent != nil {
			next.sent <- err == nil
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return connectionError(err, "exchange notifications")
		}
	}
}

// openConnection connects and subscribes to the channel of all processes and to the one of this process.
func (p *postgresLink) openConnection(ctx context.Context, self string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+broadcastChannel+"; LISTEN "+pgx.Identifier{channelFor(self)}.Sanitize()); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// channelFor returns the channel of one process, or of all if to is "".
func channelFor(to string) string {
	if to == "" {
		return broadcastChannel
	}
	return broadcastChannel + "_" + to
}

// receiveUntilOutgoing passes notifications to receive until there is a batch to send, which it returns. After
// idleTimeout without one it returns an empty batch; sendNotifications then pings the server.
func receiveUntilOutgoing(ctx context.Context, conn *pgx.Conn, receive func(string), out <-chan outgoingBatch) (outgoingBatch, error) {
	waiting, interrupt := context.WithTimeout(ctx, idleTimeout)
	defer interrupt()
	got := make(chan outgoingBatch, 1)
	go func() {
		defer close(got)
		select {
		case next := <-out:
			got <- next
			interrupt()
		case <-waiting.Done():
		}
	}()
	for {
		n, err := conn.WaitForNotification(waiting)
		if n != nil {
			receive(n.Payload)
		}
		if err == nil {
			continue
		}
		// pgx keeps the connection usable after a wait that was cancelled between messages, and closes it otherwise.
		interrupted := waiting.Err() != nil && !conn.IsClosed()
		interrupt()
		next := <-got
		if interrupted {
			err = nil
		}
		return next, err
	}
}

// sendNotifications sends the messages in one round trip, or pings the server if there are none.
func sendNotifications(ctx context.Context, conn *pgx.Conn, messages []addressedMessage) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	if len(messages) == 0 {
		return conn.Ping(ctx)
	}
	var b pgx.Batch
	for _, l := range messages {
		b.Queue("SELECT pg_notify($1, $2)", channelFor(l.to), l.payload)
	}
	return conn.SendBatch(ctx, &b).Close()
}
