package signal

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// channel is where every process listens; it is private to the database. Each has one of its own as well.
	channel = "stoa_signal"
	// quiet is how long a connection may say nothing before it is asked whether it still lives.
	quiet = 10 * time.Second
	// patience bounds connecting, sending and asking.
	patience = 5 * time.Second
)

// Postgres returns a link over LISTEN and NOTIFY on one connection of its own to the database at url. It needs a
// session: behind a pooler that shares connections between transactions nothing arrives, so give it the direct
// address or use Redis.
func Postgres(url string) Link { return &postgres{url: url} }

type postgres struct{ url string }

// limit: PostgreSQL carries less than 8,000 bytes.
func (*postgres) limit() int { return 7_500 }

// data: what is notified passes through one queue that every listener of the database reads.
func (*postgres) data() bool { return false }

// connect listens and sends on one connection: while nothing is to be sent it waits for notifications, and a message
// in out interrupts the wait.
func (p *postgres) connect(ctx context.Context, self string, ready func(), receive func(string), out <-chan parcel) error {
	conn, err := p.open(ctx, self)
	if err != nil {
		return lost(err, "connect to PostgreSQL for signals")
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	ready()
	for {
		next, err := wait(ctx, conn, receive, out)
		if err == nil {
			err = notify(ctx, conn, next.letters)
		}
		if next.sent != nil {
			next.sent <- err == nil
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return lost(err, "exchange notifications")
		}
	}
}

func (p *postgres) open(ctx context.Context, self string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel+"; LISTEN "+pgx.Identifier{address(self)}.Sanitize()); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// address is the channel of one process, or where to is "" that of all.
func address(to string) string {
	if to == "" {
		return channel
	}
	return channel + "_" + to
}

// wait hands notifications to receive until there is something to send, or nothing was heard for a while: then it
// returns an empty parcel, and sending none is a question whether the connection lives.
func wait(ctx context.Context, conn *pgx.Conn, receive func(string), out <-chan parcel) (parcel, error) {
	waiting, interrupt := context.WithTimeout(ctx, quiet)
	defer interrupt()
	got := make(chan parcel, 1)
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

func notify(ctx context.Context, conn *pgx.Conn, letters []letter) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(letters) == 0 {
		return conn.Ping(ctx)
	}
	var b pgx.Batch
	for _, l := range letters {
		b.Queue("SELECT pg_notify($1, $2)", address(l.to), l.payload)
	}
	return conn.SendBatch(ctx, &b).Close()
}
