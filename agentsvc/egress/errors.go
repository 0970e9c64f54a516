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

// errAddressRefused is what checkDial returns inside the dialer; hideAddress turns it into a [*NotAllowedError] with
// the host's name.
var errAddressRefused = errors.New("refused")

// NotAllowedError reports that Host may not be called. Host is as the caller wrote it. The error does not contain
// what Host resolved to: otherwise a tenant could map the operator's network with it.
type NotAllowedError struct {
	Host string
}

// Error returns one line that may be shown to the tenant that chose the address.
func (e *NotAllowedError) Error() string {
	return fmt.Sprintf("the address of %q is not allowed: only public addresses may be called", e.Host)
}

// TooLargeError reports that the body of a response is longer than Max bytes.
type TooLargeError struct {
	Max int64
}

// Error returns one line that may be shown to anyone.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer is longer than %d bytes", e.Max)
}

// PublicMessage returns a message for an error of a [Client] that may be shown to the tenant that chose the address.
// It contains no URL, no resolved address and nothing of the response. An unknown error is "the connection failed".
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
		return "the server answered with http at an https address"
	}
	return "the connection failed"
}

// IsUnsent reports whether an error of a [Client] proves that nothing of the request was sent: it was refused here,
// its host was not resolved, or no connection was made. Such a call may be repeated even if it is not idempotent.
func IsUnsent(err error) bool {
	var (
		refused *NotAllowedError
		dns     *net.DNSError
		op      *net.OpError
	)
	return errors.As(err, &refused) || errors.Is(err, errScheme) || errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// hideAddress removes from a dialling error what the caller did not supply: the resolved address and the name
// server's address. host is what the caller wrote.
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
