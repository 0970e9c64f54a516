package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"stoa/agentsvc/config/document"
)

// lookupEnv returns an environment variable. An empty variable counts as not set, as container platforms pass unset
// values.
func lookupEnv(name string) (string, bool) {
	v := os.Getenv(name)
	return v, v != ""
}

// Names of the variables with addresses that may contain a password.
const (
	DatabaseName        = "STOA_DATABASE"
	MigrateDatabaseName = "STOA_MIGRATE_DATABASE"
	redisName           = "STOA_REDIS"
)

// FindValue returns given if that is set, else the value of the variable name, else the content of the file that
// NAME_FILE names, else fallback.
func FindValue(given, name, fallback string) (string, error) {
	if given != "" {
		return given, nil
	}
	found, err := readSecret(name)
	return cmp.Or(found, fallback), err
}

// FindDatabase returns the addresses of the database and of its migrating login, each as [FindValue] does; migrating is "" if
// the same login migrates. Without a PostgreSQL database a migrating login is an error: a new SQLite file would be used
// instead of the database that it names.
func FindDatabase(database, migrateDatabase string) (url, migrating string, err error) {
	if url, err = FindValue(database, DatabaseName, "sqlite://stoa.db"); err != nil {
		return "", "", err
	}
	if migrating, err = FindValue(migrateDatabase, MigrateDatabaseName, ""); err != nil {
		return "", "", err
	}
	if migrating != "" && !strings.HasPrefix(url, "postgres") {
		return "", "", fmt.Errorf("--migrate-database (%s) needs --database (%s) with the same PostgreSQL database, as in postgres://USER@HOST/NAME", MigrateDatabaseName, DatabaseName)
	}
	return url, migrating, nil
}

// secretLine matches a line of a file like the one that a server on SQLite writes (writeSecrets).
var secretLine = regexp.MustCompile(`(?m)^\s*(STOA_[A-Z_]+)=`)

// variableLine matches a line NAME=value of any variable. A value of equal signs alone is the padding of base64.
var variableLine = regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=+[^=]`)

// findVariable returns the name of a variable of which text has a line NAME=value, "" if text is a value: it is taken for
// lines of variables if one of them is of Stoa, or if all of them are, apart from comments.
func findVariable(text string) string {
	if line := secretLine.FindStringSubmatch(text); line != nil {
		return line[1]
	}
	first := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		variable := variableLine.FindStringSubmatch(line)
		if variable == nil {
			return ""
		}
		first = cmp.Or(first, variable[1])
	}
	return first
}

// describeSource returns where readSecret reads a secret from, for errors about its value.
func describeSource(name string) string {
	if _, ok := lookupEnv(name); ok {
		return name
	}
	if path, ok := lookupEnv(name + "_FILE"); ok {
		return fmt.Sprintf("%s_FILE (%s)", name, path)
	}
	return name
}

// readSecret returns the secret from the environment, or from the file that NAME_FILE names, without surrounding
// white space. It returns "" if neither is set. The file has the secret alone, or lines NAME=value of several.
func readSecret(name string) (string, error) {
	if v, ok := lookupEnv(name); ok {
		return v, nil
	}
	path, ok := lookupEnv(name + "_FILE")
	if !ok {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}
	text := strings.TrimSpace(string(raw))
	if other := findVariable(text); other != "" {
		value := findSecretValue(text, name)
		switch {
		case value != "":
			return value, nil
		case other == name:
			return "", fmt.Errorf("%s_FILE: %s has a line for %s without a value", name, path, name)
		}
		return "", fmt.Errorf("%s_FILE: %s has a line for %s, and none for %s", name, path, other, name)
	}
	if text == "" {
		return "", fmt.Errorf("%s_FILE: %s is empty", name, path)
	}
	return text, nil
}

// maxShownValue is the length, in bytes, up to which a value that cannot be read is shown. The secrets of Stoa are longer:
// one that was written to the wrong variable is not shown.
const maxShownValue = 16

// envError replaces envconfig's error, which contains the variable's value, by one that names the variable and what its
// value must be. It shows a short value.
func envError(err error) error {
	var p *envconfig.ParseError
	if !errors.As(err, &p) {
		return err
	}
	text := fmt.Sprintf("%s in the environment must be %s", p.KeyName, describeValues(p.KeyName, p.TypeName))
	if len(p.Value) <= maxShownValue {
		text += fmt.Sprintf(", not %q", p.Value)
	}
	return errors.New(text)
}

// describeValues returns in words what the value of the variable with a name must be, whose setting has a Go type.
func describeValues(name, typeName string) string {
	switch strings.TrimPrefix(typeName, "*") {
	case "int", "int64":
		switch name {
		case "STOA_PORT":
			return "a whole number such as 8080"
		case "STOA_GRPC_PORT":
			return "a whole number such as 50051"
		}
		return "a whole number such as 8"
	case "bool":
		return "true or false"
	case "time.Duration":
		return "a duration such as 30s or 5m"
	case "map[string]string":
		return "pairs with a colon between them, separated by commas, such as input_tokens:tokens_in"
	}
	return "another value"
}

// clientVariables are the variables of the client commands. They may be set where a server runs.
var clientVariables = []string{"STOA_SERVER", "STOA_CA_FILE", "STOA_TOKEN", "STOA_TOKEN_FILE"}

// listVariables returns the names of all variables that Stoa reads and that begin with STOA_.
func listVariables() []string {
	all := slices.Clone(clientVariables)
	for prefix, settings := range map[string]any{
		"stoa": &environment{}, "stoa_notification": &notificationSettings{}, "stoa_export": &exportSettings{}, "stoa_invoice": &billingSettings{},
	} {
		var names strings.Builder
		// It fails for a template that is wrong, and for no value.
		_ = envconfig.Usagef(prefix, settings, &names, "{{range .}}{{usage_key .}} {{end}}")
		all = append(all, strings.Fields(names.String())...)
	}
	for _, name := range []string{
		DatabaseName, MigrateDatabaseName, redisName, AdminSecretName, MasterKeyName, MetricsTokenName, NotificationSecretName, WebhookSecretName, stripeKeyName,
	} {
		all = append(all, name, name+"_FILE")
	}
	return all
}

// UnknownVariables yields the names of the variables that begin with STOA_ and that neither Stoa nor the operator's file
// reads, in order, each with the known name that is nearest to it, "" if none is.
func (a *DefaultApp) UnknownVariables() iter.Seq2[string, string] {
	return func(yield func(name, suggestion string) bool) {
		known := listVariables()
		for _, pair := range slices.Sorted(slices.Values(os.Environ())) {
			name, value, _ := strings.Cut(pair, "=")
			if !strings.HasPrefix(name, "STOA_") || value == "" || slices.Contains(known, name) || bytes.Contains(a.source, []byte(name)) {
				continue
			}
			if !yield(name, document.SuggestWord(name, known)) {
				return
			}
		}
	}
}

// WarnUnknownVariables logs the unknown variables: a name with a mistake would otherwise be ignored silently.
func (a *DefaultApp) WarnUnknownVariables(log *slog.Logger) {
	for name, suggestion := range a.UnknownVariables() {
		attrs := []any{"variable", name}
		if suggestion != "" {
			attrs = append(attrs, "did_you_mean", suggestion)
		}
		log.Warn("the environment variable is not known and has no effect", attrs...)
	}
}
