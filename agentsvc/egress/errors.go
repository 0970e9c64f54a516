package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
)

var errAddressRefused = errors.New("refused")

// NotAllowedError says that Host, as the caller wrote it, may not be called. It keeps to itself what Host resolved
// to: an answer that told would map the inside of the network.
type NotAllowedError struct {
	Host string
}

// Error returns one line that may be shown to whoever chose the address.
func (e *NotAllowedError) Error() string {
	return fmt.Sprintf("the address of %q is not allowed: only public addresses may be called", e.Host)
}

// TooLargeError says that an answer was longer than Max bytes.
type TooLargeError struct {
	Max int64
}

// Error returns one line that may be shown to anyone.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer is longer than %d bytes", e.Max)
}

// PublicMessage puts an error of this package's client into words that may be shown to whoever chose the address: they hold
// no URL, no resolved address and nothing of the answer.
func PublicMessage(err error) string {
	var (
		refused *NotAllowedError
		large   *TooLargeError
		dns     *net.DNSError
		timeout net.Error
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &large):
		return large.Error()
	case errors.Is(err, errTooManyRedirects):
		return errTooManyRedirects.Error()
	case errors.Is(err, errScheme):
		return errScheme.Error()
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &record):
		return "no trusted TLS connection could be made"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks http where https was asked for"
	}
	return "the connection failed"
}

// IsUnsent reports whether an error of this package's client says that nothing of the request left: it may not be sent, or
// there was nobody to take it.
func IsUnsent(err error) bool {
	var (
		refused *NotAllowedError
		dns     *net.DNSError
		op      *net.OpError
	)
	return errors.As(err, &refused) || errors.Is(err, errScheme) || errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// hideAddress takes from a dialling error what the caller did not say: the resolved address and the name server's.
func hideAddress(host string, err error) error {
	if errors.Is(err, errAddressRefused) {
		return &NotAllowedError{Host: host}
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		known := *dns
		known.Server = ""
		return &known
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return &net.OpError{Op: op.Op, Net: op.Net, Err: op.Err}
	}
	return err
}
