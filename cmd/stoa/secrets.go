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

// processSecrets are what a process must know and nobody else may.
type processSecrets struct {
	adminSecret  string // one, or two with a comma while they are being changed
	masterKeys   string // base64, likewise
	metricsToken string
	path         string // where the first two lie, if this process's kind made them
}

// loadSecrets reads the secrets. What is missing is made on SQLite, once, in a file beside the database that only its
// owner reads; on PostgreSQL, which other processes share, it is an error.
func loadSecrets(engine db.Engine, database string) (processSecrets, error) {
	var s processSecrets
	var errs [3]error
	s.adminSecret, errs[0] = readSecret(adminSecretName)
	s.masterKeys, errs[1] = readSecret(masterKeyName)
	s.metricsToken, errs[2] = readSecret(metricsTokenName)
	if err := errors.Join(errs[:]...); err != nil {
		return s, err
	}
	if s.adminSecret != "" && s.masterKeys != "" {
		return s, nil
	}
	if engine == db.Postgres {
		return s, fmt.Errorf("on PostgreSQL %s and %s must be set, or %s_FILE and %s_FILE: every process of the fleet shares them; "+
			"make them with: openssl rand -base64 32", adminSecretName, masterKeyName, adminSecretName, masterKeyName)
	}
	return s, s.fillFromFile(secretsFile(database))
}

// fillFromFile fills in what is missing from the file at path, which it makes or completes.
func (s *processSecrets) fillFromFile(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the secrets of this server: %w", err)
	}
	text := string(raw)
	for _, one := range []struct {
		name  string
		value *string
	}{{adminSecretName, &s.adminSecret}, {masterKeyName, &s.masterKeys}} {
		if *one.value != "" {
			continue
		}
		if *one.value = findSecretValue(text, one.name); *one.value != "" {
			continue
		}
		*one.value = generateSecret()
		text += one.name + "=" + *one.value + "\n"
	}
	s.path = path
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

func findSecretValue(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == name {
			return value
		}
	}
	return ""
}

// generateSecret returns 32 random bytes in base64.
func generateSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// openKeyring opens the ring of the master keys.
func (s processSecrets) openKeyring() (*tenancy.Keyring, error) {
	var masters [][]byte
	for field := range strings.SplitSeq(s.masterKeys, ",") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(field))
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("%s must be 32 bytes in base64 (two, with a comma between, while it is being changed); make one with: openssl rand -base64 32", masterKeyName)
		}
		masters = append(masters, raw)
	}
	return tenancy.NewKeyring(masters...)
}
