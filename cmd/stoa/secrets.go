package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// secrets are what a process must know and nobody else may.
type secrets struct {
	admin   string // one, or two with a comma while they are being changed
	master  string // base64, likewise
	metrics string
	file    string // where the first two lie, if this process's kind made them
}

// loadSecrets reads the secrets. What is missing is made on SQLite, once, in a file beside the database that only its
// owner reads; on PostgreSQL, which other processes share, it is an error.
func loadSecrets(engine db.Engine, database string) (secrets, error) {
	var s secrets
	var errs [3]error
	s.admin, errs[0] = secretFrom(adminSecretName)
	s.master, errs[1] = secretFrom(masterKeyName)
	s.metrics, errs[2] = secretFrom(metricsTokenName)
	if err := errors.Join(errs[:]...); err != nil {
		return s, err
	}
	if s.admin != "" && s.master != "" {
		return s, nil
	}
	if engine == db.Postgres {
		return s, fmt.Errorf("on PostgreSQL %s and %s must be set, or %s_FILE and %s_FILE: every process of the fleet shares them; "+
			"make them with: openssl rand -base64 32", adminSecretName, masterKeyName, adminSecretName, masterKeyName)
	}
	return s, s.keep(secretsFile(database))
}

// keep fills in what is missing from the file at path, which it makes or completes.
func (s *secrets) keep(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the secrets of this server: %w", err)
	}
	text := string(raw)
	for _, one := range []struct {
		name  string
		value *string
	}{{adminSecretName, &s.admin}, {masterKeyName, &s.master}} {
		if *one.value != "" {
			continue
		}
		if *one.value = lineOf(text, one.name); *one.value != "" {
			continue
		}
		*one.value = newSecret()
		text += one.name + "=" + *one.value + "\n"
	}
	s.file = path
	if text == string(raw) {
		return nil
	}
	return writeSecrets(path, text)
}

// writeSecrets replaces the file as a whole, so that a crash leaves the old one or the new one.
func writeSecrets(path, text string) error {
	next := path + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return fmt.Errorf("keep the secrets of this server: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("keep the secrets of this server: %w", err)
	}
	return nil
}

func lineOf(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == name {
			return value
		}
	}
	return ""
}

// newSecret returns 32 random bytes in base64.
func newSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// keyring opens the ring of the master keys.
func (s secrets) keyring() (*tenancy.Keyring, error) {
	var masters [][]byte
	for field := range strings.SplitSeq(s.master, ",") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(field))
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("%s must be 32 bytes in base64 (two, with a comma between, while it is being changed); make one with: openssl rand -base64 32", masterKeyName)
		}
		masters = append(masters, raw)
	}
	return tenancy.NewKeyring(masters...)
}
