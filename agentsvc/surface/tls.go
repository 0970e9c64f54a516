package surface

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
)

// NewTLSConfig returns how listeners are to encrypt, nil where they are not to: TLS 1.2 or later, with the certificate that stands
// in c's files. They are looked at again while the process serves: connections made after a change are shown the new
// certificate, those that are open go on. What is wrong with the files is an error now; later it is logged, and the
// certificate before stays.
func NewTLSConfig(c config.TLS, log *slog.Logger) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	p := &keyPair{files: c, log: log}
	if err := p.loadFiles(time.Now()); err != nil {
		return nil, fmt.Errorf("server.tls: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.getCertificate}, nil
}

// reloadInterval is how often, at most, the files of a certificate are read.
const reloadInterval = time.Second

// keyPair is a certificate and its key, as they stand in files.
type keyPair struct {
	files   config.TLS
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]

	mu        sync.Mutex
	checkedAt time.Time
	lastRead  []byte // what the files last held, good or bad
}

// getCertificate is what whoever connects is shown.
func (p *keyPair) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p.mu.TryLock() {
		if time.Since(p.checkedAt) >= reloadInterval {
			if err := p.loadFiles(time.Now()); err != nil {
				p.log.Error("the certificate was not renewed, the one before stays", "error", err)
			}
		}
		p.mu.Unlock()
	}
	return p.current.Load(), nil
}

// loadFiles reads the files and takes over what they hold, if that has changed since they were last read.
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
		return nil
	}
	p.lastRead = both
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", p.files.CertFile, p.files.KeyFile, explainKeyError(err, key))
	}
	if err := checkValidity(pair.Leaf, now); err != nil {
		return fmt.Errorf("%s: %w", p.files.CertFile, err)
	}
	if p.current.Swap(&pair) != nil {
		p.log.Info("the certificate was renewed", "serial", pair.Leaf.SerialNumber.String(), "until", pair.Leaf.NotAfter)
	}
	return nil
}

// explainKeyError returns err, which tells what is wrong with a pair, or what most often is: a key that is encrypted.
func explainKeyError(err error, key []byte) error {
	if block, _ := pem.Decode(key); block != nil && (block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "") {
		return fmt.Errorf("the key is encrypted; it must lie there in the clear, readable by this process alone")
	}
	return err
}

// checkValidity refuses a certificate that no client would take now.
func checkValidity(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate has expired on %s", FormatTime(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", FormatTime(c.NotBefore))
	}
	return nil
}
