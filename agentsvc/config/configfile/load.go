// Package configfile reads the operator's configuration file, with the variables of the environment and of .env files,
// and watches it for changes.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/joho/godotenv"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
)

// Read reads a configuration file, at most one byte more than a document may have, by which [config.Parse] detects one that is
// too long.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, document.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return src, nil
}

// CheckText returns a [*document.Error] for an empty text of the file at path: it was truncated, or is in the middle of being
// written.
func CheckText(path string, src []byte) error {
	if len(bytes.TrimSpace(src)) > 0 {
		return nil
	}
	return &document.Error{File: path, Problems: []document.Problem{{Message: "is empty: it must have keys such as llms and agents"}}}
}

// NewOptions returns the options with which the operator's file at path is parsed, with the present variables. A variable
// is taken from environ, the process's environment, else from the first .env file that has it: of the current folder, of
// the file's folder, of the home folder.
func NewOptions(path string, environ func(name string) (string, bool)) (config.Options, error) {
	lookup, err := newFolderLookup(environ, filepath.Dir(path))
	return config.Options{File: path, Lookup: lookup}, err
}

// EnvFile returns the path of the .env file next to the operator's file at path.
func EnvFile(path string) string { return filepath.Join(filepath.Dir(path), ".env") }

// NewLookup returns the lookup of variables for an operator without a file: environ, then the .env files of the
// current folder and the home folder.
func NewLookup(environ func(name string) (string, bool)) (func(name string) (string, bool), error) {
	return newFolderLookup(environ, ".")
}

// newFolderLookup returns the lookup for a file in folder. The .env files are read now, not at each lookup.
func newFolderLookup(environ func(name string) (string, bool), folder string) (func(name string) (string, bool), error) {
	folders := []string{".", folder}
	if home, _ := environ("HOME"); home != "" {
		folders = append(folders, home)
	}
	sources := []func(string) (string, bool){environ}
	for _, folder := range folders {
		values, err := readEnvFile(filepath.Join(folder, ".env"))
		if err != nil {
			return nil, err
		}
		sources = append(sources, func(name string) (string, bool) {
			value, ok := values[name]
			return value, ok
		})
	}
	return func(name string) (string, bool) {
		for _, source := range sources {
			if value, ok := source(name); ok {
				return value, true
			}
		}
		return "", false
	}, nil
}

// readEnvFile reads one .env file; a missing file is empty. It does not return the parser's own message, which quotes
// the line it could not read and so may contain a secret.
func readEnvFile(path string) (map[string]string, error) {
	values, err := godotenv.Read(path)
	var pathError *fs.PathError
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return values, nil
	case errors.As(err, &pathError):
		return nil, fmt.Errorf("read variables: %w", err)
	}
	return nil, fmt.Errorf("read variables: %s: a line is not of the form NAME=value", path)
}
