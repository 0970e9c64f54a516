package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Names of the secrets. A secret is never a flag, because command lines are visible to other users of the machine: it
// comes from the environment, from the file that NAME_FILE names, or on SQLite from a file next to the database.
const (
	AdminSecretName  = "STOA_ADMIN_SECRET"
	MasterKeyName    = "STOA_MASTER_KEY"
	MetricsTokenName = "STOA_METRICS_TOKEN"
)

// processSecrets are the secrets of a process. They are set by loadSecrets and then read-only.
type processSecrets struct {
	// adminSecret is one secret, or two with a comma between them during a rotation: both are accepted.
	adminSecret string
	// masterKeys is one key, or two likewise: 32 bytes each in base64. The first one encrypts, both decrypt.
	masterKeys string
	// metricsToken is the bearer token of the metrics endpoint, "" = none is needed.
	metricsToken string
	// path is the absolute path of the file that contains the admin secret, "" if that came from the environment.
	path string
	// masterKeySource is where the master keys came from, for messages: the variable, the file that it names, or its
	// line in the file at path.
	masterKeySource string
}

// loadSecrets reads the secrets of the process. On SQLite it generates a missing admin secret or master key and
// stores it in a file next to the database, readable by its owner only; if d has rows under a master key, a missing one
// is an error, because a new one would not decrypt them. On PostgreSQL a missing secret is an error, because all
// processes on the database must have the same.
func loadSecrets(ctx context.Context, d *db.DB, database string) (processSecrets, error) {
	s := processSecrets{masterKeySource: describeSource(MasterKeyName)}
	var errs [3]error
	s.adminSecret, errs[0] = readSecret(AdminSecretName)
	s.masterKeys, errs[1] = readSecret(MasterKeyName)
	s.metricsToken, errs[2] = readSecret(MetricsTokenName)
	if err := errors.Join(errs[:]...); err != nil {
		return s, settingError{err}
	}
	// The metrics token is optional: without one the endpoint is open.
	if s.adminSecret != "" && s.masterKeys != "" {
		return s, nil
	}
	if d.Engine() == db.Postgres {
		return s, settingError{fmt.Errorf("on PostgreSQL %s and %s must be set, or %s_FILE and %s_FILE: every process of the fleet shares them; "+
			"make them with: openssl rand -base64 32", AdminSecretName, MasterKeyName, AdminSecretName, MasterKeyName)}
	}
	path := SecretsFile(database)
	if s.masterKeys == "" {
		s.masterKeySource = MasterKeyName + " in " + path
	}
	return s, s.fillFromFile(path, func() error { return checkNothingSealed(ctx, d, path) })
}

// FindSecrets returns the admin secret and the master keys that a server with these settings would use, and where the keys
// come from, for messages. It generates none: on SQLite admin is "" and keys nil where the first start would.
func (s DatabaseSettings) FindSecrets() (admin string, keys *keyring.Keyring, source string, err error) {
	found := processSecrets{masterKeySource: describeSource(MasterKeyName)}
	var errs [2]error
	found.adminSecret, errs[0] = readSecret(AdminSecretName)
	found.masterKeys, errs[1] = readSecret(MasterKeyName)
	if err := errors.Join(errs[:]...); err != nil {
		return "", nil, found.masterKeySource, err
	}
	if strings.HasPrefix(s.URL, "sqlite://") && (found.adminSecret == "" || found.masterKeys == "") {
		path := SecretsFile(s.URL)
		raw, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, path, fmt.Errorf("read the secrets of this server: %w", err)
		}
		found.adminSecret = cmp.Or(found.adminSecret, findSecretValue(string(raw), AdminSecretName))
		if found.masterKeys == "" {
			found.masterKeySource = MasterKeyName + " in " + path
			found.masterKeys = findSecretValue(string(raw), MasterKeyName)
		}
	}
	if found.masterKeys != "" {
		keys, err = found.openKeyring()
	}
	return found.adminSecret, keys, found.masterKeySource, err
}

// checkNothingSealed returns an error if the SQLite database d has rows under a master key. Every server on it has
// stored a signing key, the first when it was started first.
func checkNothingSealed(ctx context.Context, d *db.DB, path string) error {
	used := false
	for _, query := range []string{`SELECT 1 FROM sqlite_master WHERE name = 'signing_key'`, `SELECT 1 FROM signing_key LIMIT 1`} {
		used = false
		var b db.Batch
		b.Query(func(db.Row) error { used = true; return nil }, query)
		if err := d.Platform().Do(ctx, &b); err != nil || !used {
			return err
		}
	}
	return fmt.Errorf("the database has data, but there is no %s with its master key: restore %s too, or set %s to the key that encrypted it",
		filepath.Base(path), path, MasterKeyName)
}

// fillFromFile sets the secrets that are missing from the file at path. It generates those that the file lacks and
// adds them to it, so that they are the same after a restart. It generates a master key only if mayGenerate returns nil.
func (s *processSecrets) fillFromFile(path string, mayGenerate func() error) error {
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return settingError{fmt.Errorf("read the secrets of this server: %w", err)}
	}
	text, hasAdminSecret := string(raw), s.adminSecret != ""
	for _, one := range []struct {
		name  string
		value *string
	}{{AdminSecretName, &s.adminSecret}, {MasterKeyName, &s.masterKeys}} {
		if *one.value != "" {
			continue
		}
		if *one.value = findSecretValue(text, one.name); *one.value != "" {
			continue
		}
		if one.name == MasterKeyName {
			if err := mayGenerate(); err != nil {
				return err
			}
		}
		*one.value = generateSecret()
		// Lines are appended, so that what else is in the file is kept.
		text += one.name + "=" + *one.value + "\n"
	}
	if !hasAdminSecret {
		if s.path, err = filepath.Abs(path); err != nil {
			return fmt.Errorf("find the folder of the secrets of this server: %w", err)
		}
	}
	if text == string(raw) {
		return nil
	}
	return writeSecrets(path, text)
}

// writeSecrets replaces the file atomically by a rename: after a crash the file is complete, either the old or the
// new one. A lost master key would make every stored secret unreadable.
func writeSecrets(path, text string) error {
	next := path + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return fmt.Errorf("store the secrets of this server: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("store the secrets of this server: %w", err)
	}
	return nil
}

// findSecretValue returns the value of the line NAME=value, "" if there is none.
func findSecretValue(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == name {
			return value
		}
	}
	return ""
}

// generateSecret returns 32 random bytes in base64. crypto/rand.Read never returns an error.
func generateSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}

// openKeyring returns the keyring of the master keys. The first key wraps new data keys; the others only unwrap.
func (s processSecrets) openKeyring() (*keyring.Keyring, error) {
	var masters [][]byte
	for field := range strings.SplitSeq(s.masterKeys, ",") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(field))
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("%s must be 32 bytes in base64 (two, with a comma between, while it is being changed); make one with: openssl rand -base64 32", s.masterKeySource)
		}
		masters = append(masters, raw)
	}
	return keyring.New(masters...)
}

// FindAdminSecret returns the admin secret from the environment, from the file that the environment names, or from
// the file that a server on SQLite keeps next to its database. During a rotation two secrets are valid; it returns
// the first.
func FindAdminSecret() (string, error) {
	secret, err := readSecret(AdminSecretName)
	if secret != "" || err != nil {
		return firstSecret(secret), err
	}
	database, err := readSecret(DatabaseName)
	if err != nil {
		return "", err
	}
	name := SecretsFile(database)
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the admin secret: %w", err)
	}
	if secret := findSecretValue(string(content), AdminSecretName); secret != "" {
		return firstSecret(secret), nil
	}
	return "", fmt.Errorf("no admin secret: set %s or %s_FILE, or run this in the folder of the server's %s",
		AdminSecretName, AdminSecretName, filepath.Base(name))
}

// SecretsFile returns the path of the file with the generated secrets: stoa.secrets in the folder of the SQLite
// database.
func SecretsFile(database string) string {
	path, ok := strings.CutPrefix(database, "sqlite://")
	path, _, _ = strings.Cut(path, "?")
	if !ok || path == ":memory:" {
		path = "stoa.db"
	}
	return filepath.Join(filepath.Dir(path), "stoa.secrets")
}

// firstSecret returns the first of one or two secrets with a comma between them.
func firstSecret(list string) string {
	one, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(one)
}
