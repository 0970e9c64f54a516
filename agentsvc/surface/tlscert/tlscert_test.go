package tlscert

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface/tlscert/tlscerttest"
)

// TestTLSRefuses checks that files which cannot be used are errors that name the problem.
func TestTLSRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good, other := tlscerttest.NewPair(t, 1, now.Add(-time.Hour), now.Add(time.Hour)), tlscerttest.NewPair(t, 2, now.Add(-time.Hour), now.Add(time.Hour))
	sealed := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("sealed")})
	tests := []struct {
		name string
		pems tlscerttest.Pair
		want string
	}{
		{"of another key", tlscerttest.Pair{Cert: good.Cert, Key: other.Key}, "does not match"},
		{"no PEM", tlscerttest.Pair{Cert: []byte("x"), Key: good.Key}, "failed to find any PEM data"},
		{"encrypted key", tlscerttest.Pair{Cert: good.Cert, Key: sealed}, "the key is encrypted"},
		{"expired", tlscerttest.NewPair(t, 3, now.Add(-2*time.Hour), now.Add(-time.Hour)), "the certificate has expired on"},
		{"of tomorrow", tlscerttest.NewPair(t, 4, now.Add(time.Hour), now.Add(2*time.Hour)), "the certificate is not valid before"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewConfig(tt.pems.WriteFiles(t, t.TempDir()), slog.Default()); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "server.tls: ") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	missing := good.WriteFiles(t, t.TempDir())
	missing.KeyFile += ".none"
	if _, err := NewConfig(missing, slog.Default()); err == nil || !strings.Contains(err.Error(), "server.tls: key_file: ") {
		t.Errorf("a key file that is not there: %v", err)
	}
	if cfg, err := NewConfig(config.TLS{}, slog.Default()); cfg != nil || err != nil {
		t.Errorf("turned off: %v, %v", cfg, err)
	}
}

// TestFutureCertificate checks that a renewed certificate which is not valid yet is logged once and used as soon as it is
// valid, although its files do not change any more.
func TestFutureCertificate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := t.TempDir()
	files := tlscerttest.NewPair(t, 1, now.Add(-time.Hour), now.Add(time.Hour)).WriteFiles(t, dir)
	var log bytes.Buffer
	p := &keyPair{files: files, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := p.loadFiles(now); err != nil {
		t.Fatal(err)
	}
	tlscerttest.NewPair(t, 2, now.Add(time.Minute), now.Add(2*time.Hour)).WriteFiles(t, dir)
	if err := p.loadFiles(now.Add(time.Second)); err == nil || !strings.Contains(err.Error(), "is not valid before") {
		t.Errorf("a certificate that is not valid yet: %v", err)
	}
	for _, step := range []struct {
		after  time.Duration
		serial int64
	}{{2 * time.Second, 1}, {59 * time.Second, 1}, {2 * time.Minute, 2}, {3 * time.Minute, 2}} {
		if err := p.loadFiles(now.Add(step.after)); err != nil {
			t.Errorf("after %v: %v", step.after, err)
		}
		if got := p.current.Load().Leaf.SerialNumber.Int64(); got != step.serial {
			t.Errorf("after %v the certificate %d is used, want %d", step.after, got, step.serial)
		}
	}
}

// TestExpiry checks that the end of validity is that of the files, also after a renewal.
func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now, dir := time.Now().Truncate(time.Second), t.TempDir()
		c, err := NewConfig(tlscerttest.NewPair(t, 1, now.Add(-time.Hour), now.Add(time.Hour)).WriteFiles(t, dir), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := Expiry(c); !got.Equal(now.Add(time.Hour)) {
			t.Errorf("it expires at %v", got)
		}
		tlscerttest.NewPair(t, 2, now.Add(-time.Hour), now.Add(2*time.Hour)).WriteFiles(t, dir)
		time.Sleep(reloadInterval)
		if got := Expiry(c); !got.Equal(now.Add(2 * time.Hour)) {
			t.Errorf("after the renewal it expires at %v", got)
		}
	})
}
