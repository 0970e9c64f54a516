package server

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// lookupEnv returns an environment variable. An empty variable counts as not set, as container platforms pass unset
// values.
func lookupEnv(name string) (string, bool) {
	v := os.Getenv(name)
	return v, v != ""
}

// readSecret returns the secret from the environment, or from the file that NAME_FILE names, without surrounding
// white space. It returns "" if neither is set.
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
	return strings.TrimSpace(string(raw)), nil
}

// envError replaces envconfig's error, which contains the variable's value, by one that only names the variable.
func envError(err error) error {
	var p *envconfig.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("%s in the environment is not a valid %s", p.KeyName, p.TypeName)
	}
	return err
}
