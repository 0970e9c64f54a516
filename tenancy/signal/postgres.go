package signal

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// broadcastChannel is where every process listens; it is private to the database. Each has one of its own as well.
	broadcastChannel = "stoa_signal"
	// idleTimeout is how long a connection may say nothing before it is asked whether it still lives.
	idleTimeout = 10 * time.Second
	// ioTimeout bounds connecting, sending and asking.
	ioTimeout = 5 * time.Second
)

// NewPostgresLink returns a link over LISTEN and NOTIFY on one connection of its own to the database at url. It needs a
// session: behind a pooler that shares connections between transactions nothing arrives, so give it the direct
// address or use Redis.
func NewPostgresLink(url string) Link { return &postgresLink{url: url} }

type postgresLink struct{ url string }

// maxMessageSize: PostgreSQL carries less than 8,000 bytes.
func (*postgresLink) maxMessageSize() int { return 7_500 }

// carriesData: what is notified passes through one queue that every listener of the database reads.
func (*postgresLink) carriesData() bool { return false }

// serveConnection listens and sends on one connection: while nothing is to be sent it waits for notifications, and a message
// in out interrupts the wait.
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

// channelFor is the channel of one process, or where to is "" that of all.
func channelFor(to string) string {
	if to == "" {
		return broadcastChannel
	}
	return broadcastChannel + "_" + to
}

// receiveUntilOutgoing hands notifications to receive until there is something to send, or nothing was heard for a while: then it
// returns an empty parcel, and sending none is a question whether the connection lives.
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
		interrupted := waiting.Err() != nil && !conn.IsClosed()
		interrupt()
		next := <-got
		if interrupted {
			err = nil
		}
		return next, err
	}
}

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
