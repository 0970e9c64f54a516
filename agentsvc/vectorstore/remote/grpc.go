package remote

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
)

// Conn is a gRPC connection to one store, which is made at the first call. It is safe for concurrent use. It implements
// [grpc.ClientConnInterface] for unary calls, which are repeated if the store is not available.
type Conn struct {
	*grpc.ClientConn
	store   string // its type, for errors
	options Options
	header  []string // names and values

	// mu guards dialError.
	mu sync.Mutex
	// dialError is why the last attempt to connect failed, nil if it succeeded. gRPC keeps only the text.
	dialError error
}

// NewConn returns a connection to the store of a type, whose usual port is port. header are the names and values of
// metadata that each call sends.
func NewConn(store string, o Options, port int, header ...string) (*Conn, error) {
	o = o.withDefaults(port)
	c := &Conn{store: store, options: o, header: header}
	security := insecure.NewCredentials()
	if o.EnableTLS {
		config := o.Egress.TLS()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		security = credentials.NewTLS(config)
	}
	// The name is resolved by the egress client, which checks what it resolves to: passthrough hands it on as it is.
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(o.Host, strconv.Itoa(o.Port)),
		grpc.WithTransportCredentials(security), grpc.WithNoProxy(), grpc.WithUserAgent(egress.UserAgent),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, o.Egress, address) }),
		grpc.WithDisableServiceConfig(),
		// A store that comes back is found again soon.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}}))
	if err != nil {
		return nil, &vectorstore.RejectedError{Store: store, Message: "has no usable address: check host and port", Err: err}
	}
	c.ClientConn = conn
	return c, nil
}

// dial connects, and notes why that failed.
func (c *Conn) dial(ctx context.Context, client *egress.Client, address string) (net.Conn, error) {
	conn, err := client.DialContext(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialError = err
	return conn, err
}

// lastDialError returns why the last attempt to connect failed.
func (c *Conn) lastDialError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialError
}

// Documents returns the option of a call whose answer has at most n documents, which are the field 1 of its message. Without
// it an answer has none.
func Documents(n int) grpc.CallOption { return documents{n: n} }

// documents is the option that [Documents] returns. [Conn.Invoke] reads it.
type documents struct {
	grpc.EmptyCallOption
	n int
}

// Invoke implements [grpc.ClientConnInterface]. The answer is bounded by the option [Documents], and its memory is reserved
// before the call. A code NotFound is [ErrNotFound]; other errors are those of
// vectorstore.Store.
func (c *Conn) Invoke(ctx context.Context, method string, in, out any, options ...grpc.CallOption) error {
	ctx = metadata.AppendToOutgoingContext(ctx, c.header...)
	n := 0
	for _, o := range options {
		if d, ok := o.(documents); ok {
			n = d.n
		}
	}
	counter := &countingCodec{CodecV2: encoding.GetCodecV2("proto"), most: max(n, 1)}
	options = append(options, grpc.MaxCallRecvMsgSize(AnswerBytes(n, 0)), grpc.ForceCodecV2(counter))
	memory := c.options.newReservation()
	defer memory.ReleaseBytes()
	if err := memory.ReserveBytes(ctx, int64(AnswerBytes(n, 0))); err != nil {
		return newReadError(c.store, err, 0)
	}
	return repeatUnavailable(ctx, c.store, c.options.Timeout, func(ctx context.Context) error {
		err := c.ClientConn.Invoke(ctx, method, in, out, options...)
		switch {
		case err == nil:
			return nil
		case counter.exceeded.Load():
			return newTooManyEntries(c.store)
		case status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "received message larger than max"):
			return newReadError(c.store, capacity.ErrTooManyBytes, AnswerBytes(n, 0))
		}
		return c.newCodeError(status.Code(err))
	})
}

// countingCodec refuses messages with more than most values of the field 1 before it decodes them.
type countingCodec struct {
	encoding.CodecV2
	most int
	// exceeded reports that a message was refused.
	exceeded atomic.Bool
}

// Unmarshal implements [encoding.CodecV2].
func (c *countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	raw := data.Materialize()
	for n := 0; len(raw) > 0; {
		number, _, size := protowire.ConsumeField(raw)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if raw = raw[size:]; number != 1 {
			continue
		}
		if n++; n > c.most {
			c.exceeded.Store(true)
			return errTooManyEntries
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// newCodeError returns the error for a gRPC code.
func (c *Conn) newCodeError(code codes.Code) error {
	switch code {
	case codes.NotFound:
		return ErrNotFound
	case codes.Unauthenticated, codes.PermissionDenied:
		return NewRefusedKey(c.store)
	case codes.Unavailable:
		if err := c.lastDialError(); err != nil {
			return newConnectionError(c.store, err)
		}
		return &vectorstore.UnavailableError{Store: c.store, Message: "the connection failed"}
	case codes.DeadlineExceeded:
		return &vectorstore.UnavailableError{Store: c.store, Message: "no answer in time"}
	case codes.Aborted, codes.Canceled, codes.Internal, codes.ResourceExhausted, codes.Unknown:
		return &vectorstore.UnavailableError{Store: c.store, Message: "it answered with the gRPC code " + code.String()}
	case codes.Unimplemented:
		return NewInvalidAnswer(c.store)
	}
	return NewRefusedRequest(c.store, "gRPC code "+code.String())
}
