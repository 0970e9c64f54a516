package signal

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// NewRedisLink returns a link over Redis's publish and subscribe, on the named channel and one below it for each
// process. Installations that share a Redis need different channels.
func NewRedisLink(client redis.UniversalClient, channel string) Link {
	return &redisLink{client, channel}
}

type redisLink struct {
	client  redis.UniversalClient
	channel string
}

// maxMessageSize keeps messages small enough for a subscriber to process without delaying the next ones.
func (*redisLink) maxMessageSize() int { return 64 << 10 }

// carriesData is true: a message goes only to the subscribers of its channel.
func (*redisLink) carriesData() bool { return true }

// channelFor returns the channel of one process, or of all if to is "".
func (r *redisLink) channelFor(to string) string {
	if to == "" {
		return r.channel
	}
	return r.channel + ":" + to
}

// serveConnection subscribes on one connection and publishes through the client's pool. It returns when either fails.
func (r *redisLink) serveConnection(ctx context.Context, self string, ready func(), receive func(string), out <-chan outgoingBatch) error {
	sub := r.client.Subscribe(ctx, r.channelFor(self), r.channel)
	listening := make(chan error, 1)
	go func() {
		defer close(listening)
		listening <- r.receiveMessages(ctx, sub, ready, receive)
	}()
	err := r.publishOutgoing(ctx, out, listening)
	_ = sub.Close() // ends receiveMessages
	for range listening {
	}
	return err
}

// publishOutgoing publishes batches until one fails, listening reports an error, or ctx ends.
func (r *redisLink) publishOutgoing(ctx context.Context, out <-chan outgoingBatch, listening <-chan error) error {
	for {
		select {
		case err := <-listening:
			return connectionError(err, "listen to Redis")
		case next := <-out:
			err := r.sendBatch(ctx, next.messages)
			next.sent <- err == nil
			if err != nil {
				return connectionError(err, "publish to Redis")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendBatch publishes the messages in one round trip.
func (r *redisLink) sendBatch(ctx context.Context, messages []addressedMessage) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	_, err := r.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, l := range messages {
			pipe.Publish(ctx, r.channelFor(l.to), l.payload)
		}
		return nil
	})
	return err
}

// receiveMessages passes messages to receive. After half of idleTimeout without one it pings; if the ping is not
// answered in the same time the connection is considered lost. It calls ready when both subscriptions are confirmed.
func (r *redisLink) receiveMessages(ctx context.Context, sub *redis.PubSub, ready func(), receive func(string)) error {
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
			if m.Count == 2 { // both channels
				ready()
			}
		case *redis.Message:
			receive(m.Payload)
		}
	}
}
