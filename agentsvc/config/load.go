package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/joho/godotenv"
)

// Load reads the operator's own file. Its variables come from environ, the environment of the process, then
// from the .env files of the current folder, the file's folder and the home folder, whichever has them first.
// What is wrong with the document is an [*Error].
func Load(path string, environ func(name string) (string, bool)) (*Config, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(src)) == 0 { // cut short, or about to be written
		return nil, &Error{File: path, Problems: []Problem{{Message: "is empty: it must have keys such as llms and agents"}}}
	}
	lookup, err := newFolderLookup(environ, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return Parse(src, Options{File: path, Lookup: lookup})
}

// NewLookup returns what a variable is for an operator without a file: environ, then the .env files of the
// current folder and the home folder.
func NewLookup(environ func(name string) (string, bool)) (func(name string) (string, bool), error) {
	return newFolderLookup(environ, ".")
}

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

// readEnvFile reads one .env file; one that is not there is empty. The parser's own message is left out, since
// it quotes what it could not read.
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

// readFile reads a file, at most a little more than a document may have.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxDocumentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return src, nil
}
