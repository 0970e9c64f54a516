package signal

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// NewRedisLink returns a link over the publish and subscribe of client, on the named channel and one below it for each
// process. A Redis that several installations share needs a channel for each.
func NewRedisLink(client redis.UniversalClient, channel string) Link {
	return &redisLink{client, channel}
}

type redisLink struct {
	client  redis.UniversalClient
	channel string
}

// maxMessageSize bounds a message to what a subscriber takes in with one look.
func (*redisLink) maxMessageSize() int { return 64 << 10 }

func (*redisLink) carriesData() bool { return true }

func (p *redisLink) channelFor(to string) string {
	if to == "" {
		return p.channel
	}
	return p.channel + ":" + to
}

// serveConnection subscribes once and publishes beside it. Silence is broken by a ping; a ping without an answer ends the
// connection.
func (p *redisLink) serveConnection(ctx context.Context, self string, ready func(), receive func(string), out <-chan outgoingBatch) error {
	sub := p.client.Subscribe(ctx, p.channelFor(self), p.channel)
	listening := make(chan error, 1)
	go func() {
		defer close(listening)
		listening <- p.receiveMessages(ctx, sub, ready, receive)
	}()
	err := p.publishOutgoing(ctx, out, listening)
	_ = sub.Close() // which ends listen
	for range listening {
	}
	return err
}

func (p *redisLink) publishOutgoing(ctx context.Context, out <-chan outgoingBatch, listening <-chan error) error {
	for {
		select {
		case err := <-listening:
			return connectionError(err, "listen to Redis")
		case next := <-out:
			err := p.sendBatch(ctx, next.messages)
			next.sent <- err == nil
			if err != nil {
				return connectionError(err, "publish to Redis")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *redisLink) sendBatch(ctx context.Context, messages []addressedMessage) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	_, err := p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, l := range messages {
			pipe.Publish(ctx, p.channelFor(l.to), l.payload)
		}
		return nil
	})
	return err
}

func (p *redisLink) receiveMessages(ctx context.Context, sub *redis.PubSub, ready func(), receive func(string)) error {
	pinged := false
	for {
		got, err := sub.ReceiveTimeout(ctx, idleTimeout/2)
		var silence net.Error
		switch {
		case err == nil:
			pinged = false
		case errors.As(err, &silence) && silence.Timeout() && !pinged && ctx.Err() == nil:
			pinged = true
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
