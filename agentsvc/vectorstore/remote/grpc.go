package remote

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/vectorstore"
)

// Conn is a gRPC connection to one store, which is made at the first call. It is safe for concurrent use. It implements
// [grpc.ClientConnInterface] for unary calls, which are repeated if the store is not available.
type Conn struct {
	*grpc.ClientConn
	store   string // its type, for errors
	timeout time.Duration
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
	c := &Conn{store: store, timeout: o.Timeout, header: header}
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
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithDisableServiceConfig(),
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

// Invoke implements [grpc.ClientConnInterface]. A code NotFound is [ErrNotFound]; other errors are those of
// vectorstore.Store.
func (c *Conn) Invoke(ctx context.Context, method string, in, out any, options ...grpc.CallOption) error {
	ctx = metadata.AppendToOutgoingContext(ctx, c.header...)
	return repeatUnavailable(ctx, c.store, c.timeout, func(ctx context.Context) error {
		err := c.ClientConn.Invoke(ctx, method, in, out, options...)
		if err == nil {
			return nil
		}
		return c.newCodeError(status.Code(err))
	})
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
