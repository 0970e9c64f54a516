package migrations

import (
	"embed"
	"io/fs"
)

// sessionFiles are the migrations of the databases that apps configure. Both engines execute the same text.
//
//go:embed session/*.sql
var sessionFiles embed.FS

// SessionMigrations returns the SQL that creates the tables of sessions and rate limits in a database that an app
// configures (storage.sessions.database), one text per version in order. Each text is several statements, which the
// caller must execute in one transaction.
func SessionMigrations() ([]string, error) {
	names, err := fs.Glob(sessionFiles, "session/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]string, len(names))
	for i, name := range names {
		text, err := sessionFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		steps[i] = string(text)
	}
	return steps, nil
}
