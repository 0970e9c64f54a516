package signal

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// Redis returns a link over the publish and subscribe of client, on the named channel and one below it for each
// process. A Redis that several installations share needs a channel for each.
func Redis(client redis.UniversalClient, channel string) Link { return &pubsub{client, channel} }

type pubsub struct {
	client  redis.UniversalClient
	channel string
}

// limit bounds a message to what a subscriber takes in with one look.
func (*pubsub) limit() int { return 64 << 10 }

func (*pubsub) data() bool { return true }

func (p *pubsub) address(to string) string {
	if to == "" {
		return p.channel
	}
	return p.channel + ":" + to
}

// connect subscribes once and publishes beside it. Silence is broken by a ping; a ping without an answer ends the
// connection.
func (p *pubsub) connect(ctx context.Context, self string, ready func(), receive func(string), out <-chan parcel) error {
	sub := p.client.Subscribe(ctx, p.address(self), p.channel)
	heard := make(chan error, 1)
	go func() {
		defer close(heard)
		heard <- p.listen(ctx, sub, ready, receive)
	}()
	err := p.publish(ctx, out, heard)
	_ = sub.Close() // which ends listen
	for range heard {
	}
	return err
}

func (p *pubsub) publish(ctx context.Context, out <-chan parcel, heard <-chan error) error {
	for {
		select {
		case err := <-heard:
			return lost(err, "listen to Redis")
		case next := <-out:
			err := p.send(ctx, next.letters)
			next.sent <- err == nil
			if err != nil {
				return lost(err, "publish to Redis")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *pubsub) send(ctx context.Context, letters []letter) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, l := range letters {
			pipe.Publish(ctx, p.address(l.to), l.payload)
		}
		return nil
	})
	return err
}

func (p *pubsub) listen(ctx context.Context, sub *redis.PubSub, ready func(), receive func(string)) error {
	asked := false
	for {
		got, err := sub.ReceiveTimeout(ctx, quiet/2)
		var silence net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &silence) && silence.Timeout() && !asked && ctx.Err() == nil:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		switch m := got.(type) {
		case *redis.Subscription:
			if m.Count == 2 { // of both channels
				ready()
			}
		case *redis.Message:
			receive(m.Payload)
		}
	}
}
