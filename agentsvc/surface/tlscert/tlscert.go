// Package tlscert provides the TLS configuration of listeners from a certificate and a key in files, which are read again
// while the process serves.
package tlscert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/encode"
)

// NewConfig returns the TLS configuration of listeners, nil if c is not enabled: TLS 1.2 or later, with the
// certificate and key in c's files. The files are read again while the process serves: new connections get the new
// certificate, open ones are not affected. It returns an error if the files cannot be used. Later such an error is
// logged and the previous certificate stays in use.
func NewConfig(c config.TLS, log *slog.Logger) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	p := &keyPair{files: c, log: log}
	if err := p.loadFiles(time.Now()); err != nil {
		return nil, fmt.Errorf("server.tls: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.getCertificate}, nil
}

// Expiry returns the end of validity of the certificate that new connections get with c, a configuration of NewConfig. It
// reads renewed files as a connection does.
func Expiry(c *tls.Config) time.Time {
	pair, err := c.GetCertificate(nil)
	if err != nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// reloadInterval is how often the files of a certificate are read at most. They are read when a client connects.
const reloadInterval = time.Second

// keyPair is a certificate and its key in files.
type keyPair struct {
	files config.TLS
	log   *slog.Logger
	// current is the certificate in use. It is written under mu and read without a lock.
	current atomic.Pointer[tls.Certificate]

	// mu guards the fields below and serializes loadFiles.
	mu        sync.Mutex
	checkedAt time.Time
	// lastRead is what the files contained when they were read last, usable or not: a pair that cannot be used is
	// logged once, not at every handshake.
	lastRead []byte
	// pending is the pair in lastRead if it is not valid yet, nil = it is or cannot be used. It is used once it is valid.
	pending *tls.Certificate
}

// getCertificate implements [tls.Config].GetCertificate. At most one handshake in reloadInterval reads the files;
// concurrent ones do not wait for it (TryLock).
func (p *keyPair) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p.mu.TryLock() {
		if time.Since(p.checkedAt) >= reloadInterval {
			if err := p.loadFiles(time.Now()); err != nil {
				p.log.Error("the certificate was not renewed, the previous one stays in use", "error", err)
			}
		}
		p.mu.Unlock()
	}
	return p.current.Load(), nil
}

// loadFiles reads the files and starts to use what they contain, if that has changed and is a valid pair. The caller
// holds p.mu or is the constructor.
func (p *keyPair) loadFiles(now time.Time) error {
	p.checkedAt = now
	cert, err := os.ReadFile(p.files.CertFile)
	if err != nil {
		return fmt.Errorf("cert_file: %w", err)
	}
	key, err := os.ReadFile(p.files.KeyFile)
	if err != nil {
		return fmt.Errorf("key_file: %w", err)
	}
	both := bytes.Join([][]byte{cert, key}, nil)
	if bytes.Equal(both, p.lastRead) {
		if p.pending != nil && checkValidity(p.pending.Leaf, now) == nil {
			p.use(p.pending)
		}
		return nil
	}
	p.lastRead, p.pending = both, nil
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", p.files.CertFile, p.files.KeyFile, explainKeyError(err, key))
	}
	if err := checkValidity(pair.Leaf, now); err != nil {
		p.pending = &pair
		return fmt.Errorf("%s: %w", p.files.CertFile, err)
	}
	p.use(&pair)
	return nil
}

// use makes new connections get pair. The caller holds p.mu or is the constructor.
func (p *keyPair) use(pair *tls.Certificate) {
	p.pending = nil
	if p.current.Swap(pair) != nil {
		p.log.Info("the certificate was renewed", "serial", pair.Leaf.SerialNumber.String(), "until", pair.Leaf.NotAfter)
	}
}

// explainKeyError returns a clearer error for the most common mistake, an encrypted key, else err.
func explainKeyError(err error, key []byte) error {
	if block, _ := pem.Decode(key); block != nil && (block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "") {
		return fmt.Errorf("the key is encrypted; store it unencrypted, readable by this process only")
	}
	return err
}

// checkValidity returns an error for a certificate that has expired or is not valid yet: every client would refuse it.
func checkValidity(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate has expired on %s", encode.FormatTime(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", encode.FormatTime(c.NotBefore))
	}
	return nil
}
